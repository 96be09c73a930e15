"""What SQLite refuses, as errors that say what to do."""

import sqlite3

from interlock.stores.sql.problems import Passing, Refused

_ADVICE = {
    sqlite3.SQLITE_BUSY: "another program keeps it locked: find it with lslocks or fuser, and end its transaction",
    sqlite3.SQLITE_READONLY: "it, or its folder, may only be read: change the mode, or mount it for writing",
    sqlite3.SQLITE_CANTOPEN: "it or its journal (-journal) can't be opened: look at the modes of both, of the "
    "folder, and at how many files this process may open (ulimit -n)",
    sqlite3.SQLITE_FULL: "the disk is full: make room",
    sqlite3.SQLITE_IOERR: "the disk fails, is full, or the process may not write so much: look at the machine's log",
    sqlite3.SQLITE_NOTADB: "it is no SQLite database: look at it, and remove it, or give the locks another path",
    sqlite3.SQLITE_CORRUPT: "it is damaged: end all who use it, remove it, and look for what wrote to it",
    sqlite3.SQLITE_PERM: "this user may not use it: change its mode",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
}
_PASSING = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_PROTOCOL,
)  # fmt: skip
_LASTING = (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code; 0 if it has none."""
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: Exception) -> bool:
    """Tell whether others are in the way, for a moment perhaps."""
    return code_of(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def others_are_in_the_way(error: Passing) -> bool:
    """Tell whether a step was refused for others who write, threads of this process or others."""
    cause = error.__cause__
    return not isinstance(cause, Exception) or is_busy(cause)


def refusal(error: Exception, path: str) -> Refused:
    """Return what an error means; whatever was to be written is not."""
    code = code_of(error)
    kind = Passing if code in _PASSING else Refused
    return kind(f"{path}: {error}; {_ADVICE.get(code, 'see `interlock doctor`')}")
