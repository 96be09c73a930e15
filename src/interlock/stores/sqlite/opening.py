"""Opening and checking the two files of a store.

The path of the URL is a small database that survives a restart of the machine: it contains the name of the file with
the claims of this boot, and the records of `once`.  It is written rarely, with full synchronization.

The file of the claims is beside it.  No holder survives a restart, so each boot begins with a new file, which need
not reach the disk.  A boot counts as a new one only if its id differs from the stored one, and no living process has
the file open: containers on one kernel may have different ids.
"""

import ctypes
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote

from interlock.core.claims import MICROS
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.line import Line, encode
from interlock.core.options import path_url, read_options
from interlock.core.redaction import described
from interlock.runtime import clock
from interlock.stores.files import machine
from interlock.stores.files.machine import allowed_in
from interlock.stores.files.open_file import OpenFile, Sharing, kind_of
from interlock.stores.files.opening import failed
from interlock.stores.files.system import system

EXCLUSIVE_TRY, SHARED_TRY = system.LOCK_EX | system.LOCK_NB, system.LOCK_SH | system.LOCK_NB
BESIDE = ".locks"  # the suffix of the file of locks beside an engine's database
_EXAMPLE = path_url(f"{system.EXAMPLE}.db", "sqlite:///")
_MEMORY = (
    "Only one connection sees a database in memory. For the threads and tasks of one process write memory://; "
    f"otherwise give the locks a file: {_EXAMPLE}."
)


NOBODY_ELSE = Sharing(0o700, 0, 0)  # this user and root


class SqliteOptions(NamedTuple):
    """The options of a store.

    Attributes:
        path: the absolute path of the file, without symbolic links.
        allow: a type of file system, such as "virtiofs", that the user allows because no other machine uses it.
    """

    path: str
    allow: str = ""


def options_of(url: SplitResult) -> SqliteOptions:
    """Read a URL.

    Raises:
        InvalidArgument: the path is not absolute, or an option is not allowed.
    """
    given = parse_qsl(url.query, keep_blank_values=True)
    if ("mode", "memory") in given:
        raise InvalidArgument(_MEMORY)
    found = read_options(given, {"allow": allowed_in}, "sqlite://")
    if url.netloc or url.fragment:
        raise InvalidArgument(f"sqlite:// needs a file of this machine: {_EXAMPLE}.")
    path = _checked(system.path_in_url(unquote(url.path, errors="surrogateescape").removeprefix("/")))
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"{path!r} is relative to the working directory. Write an absolute path with "
            f"{system.DATABASE_SLASHES}: {path_url('/' + path, 'sqlite:///')} or {path_url(os.path.abspath(path), 'sqlite:///')}"
        )
    return SqliteOptions(_followed(path), **found)


def options_beside(engine: Any) -> SqliteOptions:
    """Return the options for a file of locks beside the database of an engine.

    Args:
        engine: an engine of SQLAlchemy; symbolic links in the path of its database are resolved.

    Raises:
        InvalidArgument: the database is in memory, or its path is relative.
    """
    if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
        raise InvalidArgument(f"Locks need an engine of sqlite3 or aiosqlite, not {described(engine)}.")
    path = _checked(engine.url.database or "")
    if not os.path.isabs(path):
        raise InvalidArgument(
            f"The engine's database {path!r} is relative to the working directory. Give the engine an absolute path "
            f"with {system.DATABASE_SLASHES}, or pass a URL: {_EXAMPLE}."
        )
    return SqliteOptions(os.path.realpath(path) + BESIDE)


def _checked(path: str) -> str:
    if path in ("", ":memory:") or "mode=memory" in path:
        raise InvalidArgument(_MEMORY)
    if "\0" in path or path.endswith("/"):
        raise InvalidArgument(f"{path!r} is a folder, or not a path. Name a file such as {system.EXAMPLE}.db.")
    return path


def _followed(path: str) -> str:
    """Resolve symbolic links, so that the link and the file share locks.

    Raises:
        InvalidArgument: the link belongs to another user, who could choose where files are created and removed.
    """
    folder, name = os.path.split(path)
    path = os.path.join(os.path.realpath(folder), name)
    if os.path.islink(path) and not system.trusts(NOBODY_ELSE, os.lstat(path).st_uid):
        raise InvalidArgument(f"{path} is a symbolic link of another user. Write the path of the file itself.")
    return os.path.realpath(path)


Execute: TypeAlias = Callable[..., Any]
APPLICATION = 0x494C4B32  # of both files: "ILK2"
VERSION = 3
RESULTS_TABLE = (
    "CREATE TABLE kept (key BLOB PRIMARY KEY, done INTEGER NOT NULL, value TEXT NOT NULL)",
    "CREATE TABLE boot (file TEXT NOT NULL, id TEXT NOT NULL, clock TEXT NOT NULL, ahead INTEGER NOT NULL)",
)
LINES = ("CREATE TABLE line (key BLOB PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID",)
PRAGMAS = ("PRAGMA trusted_schema = off", "PRAGMA synchronous = off", "PRAGMA journal_mode = persist")
"""No WAL; a persistent journal, because users of a sticky folder may not remove it."""
FILE_TIME_SLACK = 60 * MICROS  # microseconds by which the time of a file may be too early after a power failure


class Boot(NamedTuple):
    """The boot of the machine that a file of claims belongs to.

    Attributes:
        file: the suffix of the file's name.
        id: the id of the boot.
        clock: the offset of the time namespace of its lease clock.
        ahead: microseconds to add to `clock.awake_or_not` for the time stamps in the file.
    """

    file: str
    id: str
    clock: str
    ahead: int


class Opened(NamedTuple):
    """The open file of the claims.

    Attributes:
        file: its descriptor, whose shared flock shows others that a living process uses the file.
        connection: the connection of sqlite3; SQLite's own descriptors are taken to be this file's if `file` is.
        ahead: as in `Boot`.
    """

    file: OpenFile
    connection: sqlite3.Connection
    ahead: int

    def close(self, leak: bool = False) -> None:
        """Close the connection, and then the descriptor.

        Args:
            leak: True to leak the connection, if the program has closed the descriptor: closing it would
                affect the parent's transaction, or other files.
        """
        if leak or self.file.links() < 0:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))
        else:
            self.connection.close()
        self.file.close()


def open_claims(options: SqliteOptions, alive: OpenFile) -> Opened:
    """Open the file of this boot's claims; create missing files.

    Args:
        options: the files.
        alive: becomes the `file` of the result.  If this raises, the caller closes it.

    Raises:
        StoreError: the folder does not exist or can't be written, or the path is not interlock's file.
        sqlite3.Error: the database is busy, or SQLite failed.
    """
    path = options.path
    folder = os.path.dirname(path)
    try:
        sharing = system.sharing_of(os.stat(folder))
        if sharing.mode & stat.S_ISVTX:  # users who may write to a sticky folder share nothing in it but their own
            sharing = sharing._replace(mode=sharing.mode & ~0o022)
        machine.refuse_file_system(Path(folder), options.allow, f"sqlite:///{path}")
        if not system.may_use(folder, os.W_OK | os.X_OK):
            raise StoreError(
                f"This user cannot write to {folder}, where SQLite needs a journal. Choose another folder."
            )
        _make(path, sharing)
        check_file(path, sharing)
        with closing(connect(path)) as kept:
            kept.execute("BEGIN IMMEDIATE")
            _settle(kept.execute, path, RESULTS_TABLE)
            opened = _of_this_boot(kept.execute, path, sharing, alive)
            kept.execute("COMMIT")
        return opened
    except FileNotFoundError as error:
        raise StoreError(f"The folder {folder} for the locks does not exist. Create the folder.") from error
    except OSError as error:
        raise failed(f"{path} cannot keep locks", error) from error


def _of_this_boot(execute: Execute, path: str, sharing: Sharing, alive: OpenFile) -> Opened:
    """Open the file of the claims, inside a transaction that excludes other processes."""
    began = int((clock.time_of_day() - clock.awake_or_not()) * MICROS)
    here = Boot(secrets.token_hex(6), system.restart_id(), system.time_namespace(), began)
    row = execute("SELECT file, id, clock, ahead FROM boot").fetchone()
    boot = here if row is None else Boot(*row)
    file = f"{path}-{boot.file}"
    if row is None or not os.path.lexists(file) or not (boot.id == here.id or _lives(file)):
        others = _others(path)
        written = [
            os.lstat(each).st_mtime_ns // 1000 + FILE_TIME_SLACK - int(clock.awake_or_not() * MICROS)
            for each in others
        ]
        boot = here._replace(ahead=max([began, *written]))
        file = f"{path}-{boot.file}"
        _make(file, sharing)
        _fill(file, execute, int(clock.awake_or_not() * MICROS) + boot.ahead)
        for each in (*others, *(f"{each}-journal" for each in others)):
            with suppress(OSError):
                os.unlink(each)  # a process that still has an old file open notices the removal
        execute("DELETE FROM boot")
        execute("INSERT INTO boot VALUES (?, ?, ?, ?)", boot)
    if boot.clock != here.clock:
        raise StoreError(
            f"{path} is used in another time namespace ({boot.clock}, not {here.clock}), so leases are not "
            f"comparable. Use one path per time namespace."
        )
    check_file(file, sharing)
    alive.path = file
    system.take(alive)
    system.flock(alive.fd, SHARED_TRY)
    connection = connect(file)
    for words in PRAGMAS:
        connection.execute(words)
    return Opened(alive, connection, boot.ahead)


def _lives(file: str) -> bool:
    """Return True if a living process has a file of claims open, by its flock."""
    with suppress(FileNotFoundError), open(file, "rb", 0, opener=system.opener) as opened:
        try:
            system.flock(opened.fileno(), EXCLUSIVE_TRY)
        except BlockingIOError:
            return True
    return False


def _others(path: str) -> list[str]:
    """Return the existing files of claims."""
    folder, name = os.path.split(path)
    ours = re.compile(re.escape(name) + "-[0-9a-f]{12}")
    return [os.path.join(folder, each) for each in os.listdir(folder) if ours.fullmatch(each)]


def _fill(file: str, kept: Execute, stamp: int) -> None:
    """Create the table of a new file, with the records of `once` from the other database."""
    with closing(connect(file)) as connection:
        for words in (*PRAGMAS, "BEGIN IMMEDIATE"):
            connection.execute(words)
        _settle(connection.execute, file, LINES)
        for key, done in kept("SELECT key, done FROM kept WHERE done > ?", (stamp,)).fetchall():
            connection.execute("INSERT INTO line VALUES (?, ?)", (key, encode(Line((), 0, done))))
        connection.execute("COMMIT")


def keep(path: str, key: bytes, done: int, stamp: int, value: str) -> None:
    """Write a record of `once` durably, so that it survives a restart.

    Args:
        path: the file that survives a restart.
        key: the key of the line.
        done: the end of the record, in microseconds since the epoch; 0 to remove the record.
        stamp: the time of day, in microseconds since the epoch.
        value: the value of the run.
    """
    with closing(connect(path)) as connection:
        connection.execute("PRAGMA synchronous = full")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM kept WHERE done <= ? OR key = ?", (stamp, key))
        if done:
            connection.execute("INSERT INTO kept VALUES (?, ?, ?)", (key, done, value))
        connection.execute("COMMIT")


def value_kept(path: str, key: bytes) -> str:
    """Return the value of a record of `once`; "" if there is none."""
    with closing(connect(path)) as connection:
        row = connection.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return "" if row is None else str(row[0])


def connect(path: str) -> sqlite3.Connection:
    """Return a connection to an existing file; nothing is read yet."""
    return sqlite3.connect(
        f"{system.database_url(path)}?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )


def _settle(execute: Execute, path: str, schema: tuple[str, ...]) -> None:
    """Create the tables of an empty database, or check its tables; in a transaction.

    Raises:
        StoreError: the database is another program's, or another version's.
    """
    application, version, tables = (
        execute(words).fetchone()[0]
        for words in ("PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master")
    )
    if (application, version, tables) == (0, 0, 0):
        for words in (*schema, f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {VERSION}"):
            execute(words)
    elif application != APPLICATION:
        raise StoreError(f"{path} is a database of another program. Remove the file, or give the locks another path.")
    elif version != VERSION:
        raise StoreError(f"{path} is used by another version of interlock. End its processes, and remove the file.")


def check_file(path: str, sharing: Sharing) -> None:
    """Check that a file is safe to use.

    Raises:
        FileNotFoundError: there is no file.
        StoreError: the file is not safe to use; the message gives the reason.
    """
    found = os.lstat(path)
    what = ""
    if not stat.S_ISREG(found.st_mode):
        what = f"is {kind_of(found.st_mode)}, not a file"
    elif found.st_nlink > 1:
        what = "has a second name (a hard link), under which others would not find its journal"
    elif not system.trusts(sharing, found.st_uid):
        what = f"belongs to user {found.st_uid}. To share locks, use a folder of the users' group, chmod 2770"
    elif not system.may_use(path, os.R_OK | os.W_OK):
        what = f"is not readable and writable by this user (mode {stat.S_IMODE(found.st_mode):o}). Run chmod"
    if what:
        raise StoreError(f"{path} {what}. Nothing was changed.")


def _make(path: str, sharing: Sharing) -> None:
    """Create an empty file; do nothing if it exists."""
    with suppress(FileExistsError), open(path, "xb", 0, opener=system.opener) as file:
        system.settle(file.fileno(), os.fstat(file.fileno()), sharing.file_mode, sharing)
