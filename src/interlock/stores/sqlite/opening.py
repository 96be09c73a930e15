"""The files of the locks: they are what they should be, or it is an error.

At the path lies a small database that outlives the boots of the machine: it knows which file has the claims of this
boot, and until when `once` records are kept.  It is written with full synchronization, and rarely.

The file of the claims lies beside it.  No holder from before a restart is alive, so each boot
begins with a new one; therefore nothing in it need reach the disk.  The boot is another one only if neither its id
nor its beginning is that of before (containers of one kernel may have ids of their own), and no living process has
the file open.
"""

import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qsl, quote, unquote

from interlock.core.claims import MICROS
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.line import Line, encode
from interlock.core.options import read_options, seconds_in
from interlock.core.redaction import described
from interlock.runtime import clock
from interlock.stores.files import machine
from interlock.stores.files.machine import allowed_in
from interlock.stores.files.opening import FLAGS, Sharing, failed, kind_of, settle_new, sharing_of

BESIDE = ".locks"  # what the file of an engine's locks is called, after the engine's own
_MEMORY = (
    "a database in memory is seen by one connection only: for the threads and tasks of one process write memory://, "
    "else give the locks a file: sqlite:////var/lib/app/locks.db"
)


class SqliteOptions(NamedTuple):
    """What is known of a file.

    Attributes:
        path: absolute, and without symbolic links.
        timeout: seconds for which others may keep the file busy until that is an error.
        allow: a type of file system that the user vouches for, like "virtiofs".
    """

    path: str
    timeout: float = 5.0
    allow: str = ""


def options_of(url: SplitResult) -> SqliteOptions:
    """Read a URL.

    Raises:
        InvalidArgument: there is no absolute path, or an option makes no sense.
    """
    given = parse_qsl(url.query, keep_blank_values=True)
    if ("mode", "memory") in given:
        raise InvalidArgument(_MEMORY)
    found = read_options(given, {"timeout": seconds_in, "allow": allowed_in}, "sqlite://")
    if url.netloc or url.fragment:
        raise InvalidArgument("sqlite:// names a file of this machine: sqlite:////var/lib/app/locks.db")
    path = _checked(unquote(url.path, errors="surrogateescape").removeprefix("/"))
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"{path!r} would be another file in each working directory: an absolute path has four slashes, "
            f"sqlite:////{path} or sqlite:///{os.path.abspath(path)}"
        )
    return SqliteOptions(_followed(path), **found)


def options_beside(engine: Any) -> SqliteOptions:
    """Return the file of the locks of a program whose own database is another one, beside it.

    Args:
        engine: of SQLAlchemy.  Its database has one place for locks, by whatever symbolic links it is reached.

    Raises:
        InvalidArgument: the database is no file, or it can't be told which one.
    """
    if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
        raise InvalidArgument(f"locks need an engine of sqlite3 or aiosqlite, not {described(engine)}")
    path = _checked(engine.url.database or "")
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"the engine's database, {path!r}, may be another file in each working directory: give the engine an "
            f"absolute path, which has four slashes, or give the locks a URL: sqlite:////var/lib/app/locks.db"
        )
    return SqliteOptions(os.path.realpath(path) + BESIDE)


def _checked(path: str) -> str:
    if path in ("", ":memory:") or "mode=memory" in path:
        raise InvalidArgument(_MEMORY)
    if "\0" in path or path.endswith("/"):
        raise InvalidArgument(f"{path!r} is a folder, or no path: name a file, like /var/lib/app/locks.db")
    return path


def _followed(path: str) -> str:
    """Return where a symbolic link leads: programs that name the link have the locks of those that name the file.

    Raises:
        InvalidArgument: it belongs to another user, who could choose where files are made and removed.
    """
    folder, name = os.path.split(path)
    path = os.path.join(os.path.realpath(folder), name)
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise InvalidArgument(f"{path} is a symbolic link of another user: write the path of the file itself")
    return os.path.realpath(path)


try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
except ImportError:  # where there are no such locks, the id of the boot alone tells
    flock = None  # type: ignore[assignment]

Execute: TypeAlias = Callable[..., Any]
APPLICATION = 0x494C4B32  # of both files: "ILK2"
VERSION = 2
KEPT = (
    "CREATE TABLE kept (key BLOB PRIMARY KEY, done INTEGER NOT NULL, value TEXT NOT NULL)",
    "CREATE TABLE boot (file TEXT NOT NULL, id TEXT NOT NULL, began INTEGER NOT NULL, clock TEXT NOT NULL, "
    "ahead INTEGER NOT NULL)",
)
LINES = ("CREATE TABLE line (key BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",)
SETTINGS = ("PRAGMA trusted_schema = off", "PRAGMA synchronous = off", "PRAGMA journal_mode = persist")
"""No WAL; and others of a shared folder may not be allowed to remove a journal."""
LATE = 60 * MICROS  # microseconds by which a power cut may have set back when a file was written
SAME = MICROS  # microseconds by which two looks at the beginning of one boot may differ


class Boot(NamedTuple):
    """Which boot of the machine a file of claims is for.

    Attributes:
        file: what its name ends with.
        id: of the boot.
        began: when the machine was started, microseconds since the epoch.
        clock: which time namespace its lease clock is of.
        ahead: microseconds by which the time of day was ahead of the clock that counts suspended time.
    """

    file: str
    id: str
    began: int
    clock: str
    ahead: int


class Opened(NamedTuple):
    """The file of the claims, as this process has it open.

    Attributes:
        path: where it lies.
        inode: which file that is.
        connection: to it.
        alive: a descriptor of it, whose lock tells others that a living process uses the file; -1 for none.
        ahead: as of `Boot`.
    """

    path: str
    inode: tuple[int, int]
    connection: sqlite3.Connection
    alive: int
    ahead: int

    def is_in_place(self) -> bool:
        """Tell whether its path still leads to it."""
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return (found.st_ino, found.st_dev) == self.inode

    def is_ours(self) -> bool:
        """Tell whether its descriptors are open still, and no other files: SQLite's were opened beside this one."""
        try:
            found = os.fstat(self.alive)
        except OSError:
            return self.alive < 0
        return (found.st_ino, found.st_dev) == self.inode

    def let_go(self) -> None:
        """Never close the connection: what it would close or say is another process's, or another file's."""
        import ctypes

        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))
        close_alive(self)

    def close(self) -> None:
        """Close it: first SQLite, which else would lose its locks."""
        if not self.is_ours():
            self.let_go()
            return
        with suppress(sqlite3.ProgrammingError):
            self.connection.close()
        close_alive(self)


def close_alive(opened: Opened) -> None:
    """Close the descriptor, unless a program that became a daemon has done so, and the number is another file."""
    if opened.is_ours() and opened.alive >= 0:
        os.close(opened.alive)


def open_claims(options: SqliteOptions) -> Opened:
    """Open the file of the claims of this boot; what is missing is made.

    Raises:
        StoreError: there is no folder, it can't be written, or something else lies there.
        sqlite3.Error: others are in the way, or as SQLite says.
    """
    path = options.path
    folder = os.path.dirname(path)
    try:
        sharing = _sharing(os.stat(folder))
        _refuse_file_system(folder, options.allow)
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
            raise StoreError(
                f"{folder} can't be written by this user, and SQLite makes a journal there: choose another folder"
            )
        _make(path, sharing)
        inode_of(path, sharing)
        with closing(connect(path)) as kept:
            kept.execute("BEGIN IMMEDIATE")
            _settle(kept.execute, path, KEPT)
            opened = _of_this_boot(kept.execute, path, sharing)
            kept.execute("COMMIT")
        return opened
    except FileNotFoundError as error:
        raise StoreError(f"there is no folder {folder} for the file of the locks: make it") from error
    except OSError as error:
        raise failed(f"{path} can't keep locks", error) from error


def _of_this_boot(execute: Execute, path: str, sharing: Sharing) -> Opened:
    """Open the file of the claims; meanwhile no other process makes or removes one."""
    began = int((clock.time_of_day() - clock.awake_or_not()) * MICROS)
    here = Boot(secrets.token_hex(6), machine.boot_id(), began, machine.clock(), began)
    row = execute("SELECT file, id, began, clock, ahead FROM boot").fetchone()
    boot = here if row is None else Boot(*row)
    file = f"{path}-{boot.file}"
    if row is None or not os.path.lexists(file) or not (_is_same(boot, here) or _lives(file)):
        others = _others(path)
        written = [os.lstat(each).st_mtime_ns // 1000 + LATE - int(clock.awake_or_not() * MICROS) for each in others]
        boot = here._replace(ahead=max([began, *written]))
        file = f"{path}-{boot.file}"
        _make(file, sharing)
        _fill(file, execute, int(clock.awake_or_not() * MICROS) + boot.ahead)
        for each in others:
            _remove(each)  # a process that has one open, though no longer noted, must notice that
        execute("DELETE FROM boot")
        execute("INSERT INTO boot VALUES (?, ?, ?, ?, ?)", boot)
    if boot.clock != here.clock:
        raise StoreError(
            f"{path} is used in another time namespace (its clock is ahead by {boot.clock}, here by {here.clock}): "
            f"leases can't be compared; give each time namespace a path of its own"
        )
    inode = inode_of(file, sharing)
    connection = connect(file)
    alive = -1
    try:
        for words in SETTINGS:
            connection.execute(words)
        if flock is not None:
            alive = os.open(file, os.O_RDONLY | FLAGS)
            flock(alive, LOCK_SH | LOCK_NB)
    except BaseException:
        Opened(file, inode, connection, alive, boot.ahead).close()
        raise
    return Opened(file, inode, connection, alive, boot.ahead)


def _is_same(boot: Boot, here: Boot) -> bool:
    return boot.id == here.id or abs(boot.began - here.began) <= SAME


def _lives(file: str) -> bool:
    """Tell whether a process that lives has a file of claims open: no lock outlives a boot."""
    if flock is None:
        return False
    try:
        fd = os.open(file, os.O_RDONLY | FLAGS)
    except FileNotFoundError:
        return False
    try:
        flock(fd, LOCK_EX | LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


def _others(path: str) -> list[str]:
    """Return the files of claims that are there."""
    folder, name = os.path.split(path)
    ours = re.compile(re.escape(name) + "-[0-9a-f]{12}")
    return [os.path.join(folder, each) for each in os.listdir(folder) if ours.fullmatch(each)]


def _remove(file: str) -> None:
    for each in (file, f"{file}-journal"):
        with suppress(OSError):
            os.unlink(each)


def _fill(file: str, kept: Execute, stamp: int) -> None:
    """Make the table of a new file, with the records of `once` that are kept."""
    with closing(connect(file)) as connection:
        for words in (*SETTINGS, "BEGIN IMMEDIATE"):
            connection.execute(words)
        _settle(connection.execute, file, LINES)
        for key, done in kept("SELECT key, done FROM kept WHERE done > ?", (stamp,)).fetchall():
            connection.execute("INSERT INTO line VALUES (?, ?)", (key, encode(Line((), 0, done))))
        connection.execute("COMMIT")


def keep(path: str, key: bytes, done: int, stamp: int, value: str) -> None:
    """Keep a record of `once` where the next boot finds it; the power may be cut afterwards.

    Args:
        path: of the file that outlives boots.
        key: of the line.
        done: until when, in microseconds since the epoch; 0 to keep none.
        stamp: the time of day.
        value: of the run.
    """
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA synchronous = full")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM kept WHERE done <= ? OR key = ?", (stamp, key))
        if done:
            connection.execute("INSERT INTO kept VALUES (?, ?, ?)", (key, done, value))
        connection.execute("COMMIT")


def value_kept(path: str, key: bytes) -> str:
    """Return the value of a record of `once`; "" if none is kept."""
    with closing(connect(path)) as connection:
        row = connection.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to the file that lies at the path; nothing is read yet."""
    return sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def _settle(execute: Execute, path: str, schema: tuple[str, ...]) -> None:
    """Make the tables of an empty file, or see that they are ours; inside of a transaction.

    Raises:
        StoreError: it is a database of something else.
    """
    application, version, tables = (
        execute(words).fetchone()[0]
        for words in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application, version, tables) == (0, 0, 0):
        for words in (*schema, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {VERSION}"):
            execute(words)
    elif application != APPLICATION:
        raise StoreError(f"{path} is a database of something else: remove it, or give the locks another path")
    elif version != VERSION:
        raise StoreError(f"{path} is used by another version of interlock: end its processes, and remove it")


def inode_of(path: str, sharing: Sharing) -> tuple[int, int]:
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
    elif not sharing.trusts(found.st_uid):
        what = f"belongs to user {found.st_uid}: users who share locks need a folder of their group, chmod 2770"
    elif not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        what = f"can't be read and written by this user (it has the mode {stat.S_IMODE(found.st_mode):o}): chmod it"
    if what:
        raise StoreError(f"{path} {what}; nothing was changed")
    return found.st_ino, found.st_dev


def _sharing(found: os.stat_result) -> Sharing:
    """Return the users who share the files: those who may write to the folder, unless it is a sticky one."""
    sharing = sharing_of(found)
    return sharing._replace(mode=sharing.mode & ~0o022) if sharing.mode & stat.S_ISVTX else sharing


def _make(path: str, sharing: Sharing) -> None:
    """Make an empty file; nothing if there is one."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FLAGS, 0o600)
    except FileExistsError:
        return
    try:
        settle_new(fd, os.fstat(fd), sharing.file_mode, sharing)
    finally:
        os.close(fd)


def _refuse_file_system(folder: str, allowed: str) -> None:
    kind = machine.file_system(Path(folder))
    if machine.is_network(kind):
        raise StoreError(
            f"{folder} lies on a network file system ({kind}), where SQLite's locks fail: choose a local folder, "
            f"or a store that reaches several machines"
        )
    if machine.is_guest(kind) and kind != allowed:
        raise StoreError(
            f"{folder} lies on a file system ({kind}) that others than this machine may reach, without seeing its "
            f"locks; {machine.advice_on_guest(kind, '')}"
        )
