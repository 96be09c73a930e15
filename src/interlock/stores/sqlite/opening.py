"""Opening the file of the locks: it is what it should be, or it is an error.

No descriptor of a file that is there is opened here but by SQLite: when any is closed, the process loses the locks
that SQLite has on that file (fcntl), and it may be a database that the program uses.
"""

import os
import re
import sqlite3
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

from interlock.core.errors import StoreError
from interlock.stores.files.failures import failed
from interlock.stores.files.machine import clock, file_system, is_guest, is_network
from interlock.stores.files.opening import FLAGS, Sharing, kind_of, settle_new, sharing_of
from interlock.stores.sqlite.line import APPLICATION, SCHEMA, VERSION, Execute
from interlock.stores.sqlite.options import Options

Inode: TypeAlias = tuple[int, int]
SETTINGS = ("PRAGMA trusted_schema = off", "PRAGMA synchronous = off")
"""Nothing need reach the disk: a file that a crash of the machine may have damaged is never used again."""
JOURNAL = "PRAGMA journal_mode = persist"  # others of a shared folder may not be allowed to remove it
LATE = 60.0  # seconds by which a power cut may have set back when a file was written


def find_or_make(options: Options) -> Inode:
    """Return which file lies at the path; it is made if there is none.

    Raises:
        StoreError: there is no folder, it can't be written, or something else lies there.
    """
    path = options.file
    folder = os.path.dirname(path)
    try:
        sharing = _sharing(os.stat(folder))
        _refuse_file_system(folder, options.allow)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
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
    elif sharing is not None and not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        what = f"can't be read and written by this user (it has the mode {stat.S_IMODE(found.st_mode):o}): chmod it"
    if what:
        raise StoreError(f"{path} {what}; nothing was changed")
    return found.st_ino, found.st_dev


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


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to the file that lies at the path; nothing is read yet."""
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def settle(execute: Execute, options: Options) -> tuple[int, bool]:
    """Make the tables of an empty file, or see that they are ours and of this clock; inside of a transaction.

    Returns:
        How far the file's clock is ahead of the monotonic one, in microseconds; True if the tables were made.

    Raises:
        StoreError: it is a database of something else, or is used under another clock.
    """
    path, namespace = options.file, clock()
    application, version, tables = (
        execute(words).fetchone()[0]
        for words in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application, version, tables) == (0, 0, 0):
        for words in SCHEMA:
            execute(words)
        ahead = _time_of_day(options) - time.monotonic_ns() // 1000
        execute("INSERT INTO machine VALUES (?, ?)", (namespace, ahead))
        return ahead, True
    if application != APPLICATION:
        raise StoreError(f"{path} is a database of something else: remove it, or give the locks another path")
    if version != VERSION:
        raise StoreError(f"{path} is used by another version of interlock: end its processes, and remove it")
    there, ahead = execute("SELECT namespace, ahead FROM machine").fetchone()
    if there != namespace:
        raise StoreError(
            f"{path} is used in another time namespace (its clock is ahead by {there}, here by {namespace}): leases "
            f"can't be compared; give each time namespace a path of its own"
        )
    return ahead, False


def _time_of_day(options: Options) -> int:
    """Return it in microseconds; later than all fences of the boot before, also if a restart has set it back."""
    times = [time.time()]
    for path in older(options):
        with suppress(OSError):
            times.append(os.lstat(path).st_mtime + LATE)
    return int(max(times) * 1_000_000)


def older(options: Options) -> list[str]:
    """Return the files of earlier boots, which nobody lives to use."""
    folder, name = os.path.split(options.path)
    ours = re.compile(re.escape(name) + "-[0-9a-f]{12}")
    found = (os.path.join(folder, each) for each in os.listdir(folder) if ours.fullmatch(each))
    return [each for each in found if each != options.file]


def remove_older(options: Options) -> None:
    """Remove the files of earlier boots, as far as this user may."""
    for path in older(options):
        for each in (path, f"{path}-journal"):
            with suppress(OSError):
                os.unlink(each)
