"""Opening the file of the locks: it is what it should be, or it is an error.

No descriptor of a file that is there is opened here but by SQLite: when any is closed, the process loses the locks
that SQLite has on that file (fcntl), and it may be a database that the program uses.
"""

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from interlock.core.errors import StoreError
from interlock.stores.files.failures import failed
from interlock.stores.files.machine import boot_id, clock, file_system, is_guest, is_network
from interlock.stores.files.opening import FLAGS, Sharing, kind_of, settle_new, sharing_of
from interlock.stores.sqlite.line import APPLICATION, SCHEMA, VERSION
from interlock.stores.sqlite.options import Options

Inode = tuple[int, int]


def find_or_make(options: Options) -> Inode:
    """Return which file lies at the path; it is made if there is none.

    Raises:
        StoreError: there is no folder, it can't be written, or something else lies there.
    """
    path = options.path
    folder = os.path.dirname(path)
    try:
        sharing = _sharing(os.stat(folder))
        _refuse_file_system(folder, options.allow)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StoreError(
                f"{folder} can't be written by this user, and SQLite makes a journal there: choose another folder"
            )
        try:
            return inode_of(path, sharing)
        except FileNotFoundError:
            _make(path, sharing)
        return inode_of(path, sharing)
    except FileNotFoundError as error:
        raise StoreError(f"there is no folder {folder} for the file of the locks: make it") from error
    except OSError as error:
        raise failed(f"{path} can't keep locks", error) from error


def inode_of(path: str, sharing: Sharing | None = None) -> Inode:
    """Return which file lies at a path.

    Raises:
        FileNotFoundError: none.
        StoreError: it is no file of ours.
    """
    found = os.lstat(path)
    what = ""
    if not stat.S_ISREG(found.st_mode):
        what = f"is {kind_of(found.st_mode)}, not a file"
    elif found.st_nlink > 1:
        what = "has another name too (a hard link), under which others would not see its journal"
    elif sharing is not None and not sharing.trusts(found.st_uid):
        what = f"belongs to user {found.st_uid}: users who share locks need a folder of their group, chmod 2770"
    elif sharing is not None and not os.access(path, os.R_OK | os.W_OK):
        what = f"can't be read and written by this user (it has the mode {stat.S_IMODE(found.st_mode):o}): chmod it"
    if what:
        raise StoreError(f"{path} {what}; nothing was changed")
    return found.st_dev, found.st_ino


def _sharing(found: os.stat_result) -> Sharing:
    """Return who shares the file: those who may write to its folder, unless that is for everybody's own files."""
    sharing = sharing_of(found)
    return sharing._replace(mode=sharing.mode & ~0o022) if sharing.mode & stat.S_ISVTX else sharing


def _make(path: str, sharing: Sharing) -> None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
    except FileExistsError:
        return  # made by somebody else just now
    try:
        settle_new(fd, os.fstat(fd), sharing.file_mode, sharing)
    finally:
        os.close(fd)


def _refuse_file_system(folder: str, allowed: str) -> None:
    kind = file_system(Path(folder))
    if is_network(kind):
        raise StoreError(
            f"{folder} lies on a network file system ({kind}), where SQLite's locks fail: choose a local folder, "
            f"or a store that reaches several machines"
        )
    if is_guest(kind) and kind != allowed:
        raise StoreError(
            f"{folder} lies on a file system ({kind}) that others than this machine may reach, without seeing its "
            f"locks; choose a local folder, or write ?allow={kind} if nobody else uses it"
        )


def connect(options: Options) -> sqlite3.Connection:
    """Return a connection to the file that lies at the path; nothing is read yet."""
    return sqlite3.connect(
        f"file:{quote(options.path)}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def set_up(execute: Callable[..., Any], options: Options) -> None:
    """Set what counts for the connection, outside of a transaction.

    Raises:
        StoreError: the file is in WAL mode, and in use.
    """
    execute("PRAGMA busy_timeout = 0")
    execute("PRAGMA trusted_schema = off")
    execute(f"PRAGMA synchronous = {options.synchronous}")


def set_journal(execute: Callable[..., Any], path: str) -> None:
    """Use a rollback journal, which is kept and truncated: others of a shared folder may not remove it.

    Raises:
        StoreError: SQLite does not do so.
    """
    mode = execute("PRAGMA journal_mode = truncate").fetchone()[0]
    if mode != "truncate":
        raise StoreError(f"{path} keeps its journal mode {mode}: end the programs that have it open")


def settle(execute: Callable[..., Any], path: str) -> bool:
    """Make the tables of an empty file, or see that they are ours, and of this boot; inside of a transaction.

    Returns:
        True if something was written.

    Raises:
        StoreError: it is a database of something else, or is used under another clock.
    """
    written = False
    application, version, tables = (
        execute(words).fetchone()[0]
        for words in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application, version, tables) == (0, 0, 0):
        for words in SCHEMA:
            execute(words)
        written = True
    elif application != APPLICATION:
        raise StoreError(
            f"{path} is a database of something else: give the locks a file of their own, such as {path}.locks"
        )
    elif version != VERSION:
        raise StoreError(f"{path} is used by another version of interlock: end its processes, and remove it")
    boot, ahead = boot_id(), clock()
    there = execute("SELECT boot, clock FROM machine").fetchone()
    if there is not None and there[0] == boot and there[1] != ahead:
        raise StoreError(
            f"{path} is used in another time namespace (its clock is ahead by {there[1]}, here by {ahead}): leases "
            f"can't be compared; give each time namespace a file of its own"
        )
    if there is None or there[0] != boot:
        # The machine was started since: nobody lives who held anything.
        execute("DELETE FROM claims WHERE key <> x''")
        execute("DELETE FROM machine")
        execute("INSERT INTO machine VALUES (?, ?)", (boot, ahead))
        written = True
    return written
