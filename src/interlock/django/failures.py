"""What an error of a database says about the statement: not done, or nobody knows."""

from typing import Any

from django.db import DatabaseError, IntegrityError, NotSupportedError, ProgrammingError
from django.db.utils import DataError

from interlock.core.errors import StoreError, UnknownOutcome

NOT_THERE = {"42P01", 1146}
READ_ONLY = {"25006", 1290, 1792, 1836}
AGAIN = {"40001", "40P01", "55P03", "57014", 1205, 1213, 1020, 1317, 1969, 3024}
"""PostgreSQL's states and MariaDB's numbers: rolled back because of others, or of a limit; to be tried again."""
REFUSED_CLASSES = ("22", "23", "25", "26", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57014", "0A")
FULL = {"53300", 1040, 1203, 1226}
FULL_WORDS = ("too many clients", "remaining connection slots", "too many connections", "no more connections allowed")
"""A server that refuses a connection has given no state to psycopg; the last one is PgBouncer's."""
GONE_AWAY = {2003, 2006, 2013, 2055, 1053, 1927, 1152, 1158, 1159, 1160, 1161, 4031, 0}


class NotReached(StoreError):
    """There is no connection to the database, so that nothing was sent."""


class NoConnection(NotReached):
    """All connections are in use, those of this process or those of the server; some will be free again."""


def code_of(error: BaseException) -> str | int | None:
    """Return the state (PostgreSQL) or number (MariaDB) of an error, if the server gave one."""
    cause = error.__cause__ or error
    number = cause.args[0] if cause.args else None
    if isinstance(number, int):
        return number  # it says more than the state, which some drivers give too
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    return str(state) if state else None


def is_busy(error: BaseException) -> bool:
    """True if SQLite was kept from the database by somebody who writes."""
    return "database is locked" in str(error) or "table is locked" in str(error)


def is_to_be_repeated(error: BaseException) -> bool:
    """True if the statement was not done because of others: a deadlock, a fence given to another, a busy file."""
    return isinstance(error, IntegrityError) or code_of(error) in AGAIN or is_busy(error)


def is_definite(error: BaseException, connection: Any) -> bool:
    """True if the server itself refused the statement, so that nothing of it was done."""
    if isinstance(error, (ProgrammingError, IntegrityError, DataError, NotSupportedError)):
        return True
    if connection.vendor == "sqlite":
        return "disk I/O" not in str(error)
    code = code_of(error)
    if isinstance(code, str):
        return code.startswith(REFUSED_CLASSES)
    return isinstance(code, int) and code not in GONE_AWAY


def translated(error: BaseException, connection: Any) -> StoreError:
    """Return what a failed statement is for those who lock."""
    alias = connection.alias
    if not is_definite(error, connection):
        return UnknownOutcome(f"the connection to the database {alias!r} broke during a statement: {error}")
    code = code_of(error)
    if code in NOT_THERE or "no such table" in str(error):
        return StoreError(
            f"the database {alias!r} has no table of claims: put 'interlock.django' into INSTALLED_APPS and run "
            f"`manage.py migrate interlock --database {alias}`"
        )
    if code in READ_ONLY or "readonly database" in str(error):
        return StoreError(
            f"the database {alias!r} is read-only (a replica?): give the alias of the primary ({error})"
        )
    if is_busy(error):
        return StoreError(
            f"the database {alias!r} is locked: in SQLite, a transaction that has written keeps all others from "
            f"writing, the claims too; take locks before the transaction's first write, keep transactions short, or "
            f"keep the locks elsewhere, e.g. INTERLOCK = {{'default': {{'LOCATION': 'file:///…'}}}}"
        )
    return StoreError(f"the database {alias!r} refused: {error}")


def connecting_failed(error: DatabaseError | Exception, alias: str) -> NotReached:
    """Return the error for a database that can't be reached; nothing was sent."""
    if code_of(error) in FULL or any(words in str(error).lower() for words in FULL_WORDS):
        return NoConnection(
            f"the database {alias!r} has no connection left: allow it more, or each process fewer, by OPTIONS: "
            f"{{'MAX_CONNECTIONS': …}} in INTERLOCK ({error})"
        )
    return NotReached(f"the database {alias!r} can't be reached: {error}")
