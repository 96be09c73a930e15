"""What the numbers of errors of MySQL and MariaDB mean."""

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.remote.failures import Denied, NoRoom, Passing, Refused, Unreachable, ended

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
