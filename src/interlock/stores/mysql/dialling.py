"""How PyMySQL connects by a URL, and what goes wrong there."""

import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, unquote_to_bytes

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.core.redaction import UNTOLD
from interlock.remote.failures import Denied, NoRoom, Passing, Refused, Unreachable, ended
from interlock.remote.urls import port_of

FULL = ("1040", "1203", "1226")
NO_TABLE = "1146"
READ_ONLY = ("1290", "1792", "1836")
ENDED = (1053, 1927)  # the server stops, or the connection was killed: what became of the statement is not said
AT_ONCE = ("1020", "1205", "1213", "1317")
"""Others were in the way, or somebody broke off the statement: nothing was done, and the step can be begun again."""

_MANY = "the server has as many connections as it may have: raise its max_connections (or the account's), or let the "
_MANY += "processes have fewer (?max_connections=)"
_WRITE = "this server or account may only read, and others lock elsewhere: connect to the primary"
_ADVICE = dict.fromkeys(FULL, _MANY) | dict.fromkeys(READ_ONLY, _WRITE)
_ADVICE |= {
    NO_TABLE: "the table of locks is not there: connect without ?create=false as an account that may make it, or run "
    "what `python -m interlock.stores.mysql` prints; if it has another name, say so by ?table=",
    "1044": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks",
    "1045": "account or password is wrong",
    "1049": "there is no such database",
    "1142": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks",
    "1143": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks",
    "1205": "the row or the table was locked for too long: by LOCK TABLES, a backup, or somebody's transaction?",
    "1969": "is max_statement_time shorter than a commit takes?",
}
_PASSING = (*FULL, *AT_ONCE, "1021", "1037", "1038", "1041", "1114", "1969", "3024")


def refusal(number: object, text: str, where: str) -> Refused:
    """Return what an error of the server means.

    Args:
        number: of the error.
        text: what the server said.
        where: which database, without a password.
    """
    code = str(number)
    kind = NoRoom if code in FULL else Passing if code in _PASSING else Refused
    error = kind(f"{where} refused: {text} ({code}); {_ADVICE.get(code, 'look at the error log of the server')}")
    error.code = code
    return error


def meaning(error: BaseException, where: str) -> StoreError:
    """Return what an error during a statement means."""
    number = error.args[0] if error.args else None
    if (
        isinstance(error, pymysql.MySQLError)
        and not isinstance(error, pymysql.err.InterfaceError)
        and isinstance(number, int)
        and not 2000 <= number < 3000
        and number not in ENDED
    ):
        return refusal(number, str(error.args[-1]), where)
    return ended(where, error)


def not_connected(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means."""
    error = getattr(error, "orig", None) or error
    number = error.args[0] if error.args else None
    known = isinstance(number, int) and not 2000 <= number < 3000 and number not in ENDED
    if isinstance(error, pymysql.MySQLError) and known and number:
        found = refusal(number, str(error.args[-1]), where)
        return found if isinstance(found, Passing) else Denied(str(found))
    return Unreachable(f"{where} can't be reached: {error.args[-1] if error.args else error}; is the server running?")


PORT = 3306
CRYPTOGRAPHY = "the package cryptography: pip install cryptography, or let the account log in by TLS"
FAILURES = (pymysql.Error, OSError, UnicodeError, RuntimeError)
"""Also that a host name can't be encoded, or that a package is not there."""


def arguments_in(url: SplitResult) -> dict[str, Any]:
    """Return what a URL says of the server, the account and the database, as arguments of PyMySQL.

    Raises:
        InvalidArgument: its port is none.
    """
    return {
        "host": url.hostname or "localhost",
        "port": port_of(url) or PORT,
        "user": unquote(url.username or ""),
        "password": unquote_to_bytes(url.password or ""),  # as PyMySQL takes text for Latin-1
        "database": unquote(url.path.lstrip("/")),
    }


def dialled(how: Mapping[str, object], where: str, torn: bool) -> Any:
    """Return a new connection of PyMySQL.

    Args:
        how: its arguments.
        where: which database, without a password.
        torn: True if what PyMySQL says may repeat a part of the password.

    Raises:
        Unreachable: nobody answers, or not now.
        StoreError: the server does not let us in.
    """
    try:
        return pymysql.connect(**how)
    except FAILURES as error:
        if not torn:
            raise failed(error, where) from error
    # Not while the error is handled: its own text may show a part of the password.
    raise Unreachable(f"{where} can't be reached; {UNTOLD}")


def failed(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means."""
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return StoreError(f"{where} can't be reached: this account's way to log in needs {CRYPTOGRAPHY} ({error})")
    return not_connected(error, where)
