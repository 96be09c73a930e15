"""The errors of PostgreSQL, and the advice for each."""

from interlock.core.errors import StoreError
from interlock.remote.failures import Denied, NoRoom, Passing, Refused, Unreachable, ended

ISOLATION = "IL001"  # raised by our own functions
READ_ONLY = "25006"
RECOVERY = "0A000"  # a replica can't read unlogged tables, and refuses a read-write transaction
TABLE, FUNCTION, SCHEMA, COLUMN = "42P01", "42883", "3F000", "42703"
RIGHTS = "42501"
FULL = "53300"
AWAY = "57P03"
LOOK = "look at the server's log"

_BY_HAND = "let its owner run what `python -m interlock.stores.postgresql` prints"
_MISSING = (
    f"the table of locks and its functions are missing, and are not to be made here (?create=false): {_BY_HAND}, or "
    f"name their place by ?schema= and ?table="
)
_ADVICE = {
    ISOLATION: "its steps need the isolation level read committed, which could not be had",
    READ_ONLY: "this server or role may only read: connect to the primary, with a role that may write",
    COLUMN: "the table of locks is one of another version of interlock: drop it, or take another one (?table=)",
    RIGHTS: f"if the table of locks is not there, and this role may not make it, {_BY_HAND}; if it is, GRANT this "
    "role SELECT, INSERT, UPDATE, DELETE on it, SELECT, INSERT on the one called …_alive, EXECUTE on the functions "
    "and USAGE on the schema",
    "28P01": "user name or password is wrong",
    "28000": "the server does not let this user in: is there such a role? Else look at its pg_hba.conf",
    "3D000": "there is no such database",
    FULL: "the server, database, role or pooler has as many connections as it may have: raise its limit, or let the "
    "processes have fewer (?max_connections=)",
    "53100": "the disk of the server is full",
    AWAY: "the server is starting or stopping: try again in a moment",
    "57014": "the server cancelled the step: is the role's statement_timeout shorter than a commit takes?",
    "55P03": "another step of the same name took longer than the role's lock_timeout",
}
AT_ONCE = ("40001", "40P01", "55P03", "57014")
"""A conflict with other transactions, or a time-out: the step was rolled back, and can be retried at once."""
_DENIED = (
    ("28P01", "password authentication failed"),
    ("28000", "pg_hba.conf"),
    ("28000", 'role "'),
    ("3D000", 'database "'),
)
_FULL = ("too many clients", "too many connections for", "remaining connection slots", "no more connections allowed")
"""The errors of servers that accept no more connections; the last one is PgBouncer's."""


def refusal(code: str, text: str, where: str) -> Refused:
    """Return the error to raise for an error of the database.

    Args:
        code: its SQLSTATE.
        text: the database's message.
        where: the database, without a password.
    """
    passes = code in (*AT_ONCE, AWAY) or code[:2] in ("53", "58")  # insufficient resources, system error
    error = (Passing if passes else Refused)(
        # The advice comes first; the name of a function is shown without its thirteen arguments.
        f"{where}: {_MISSING} ({text.partition('(')[0]}; {code})"
        if code in (TABLE, FUNCTION, SCHEMA)
        else f"{where} refused: {text} ({code}); {_ADVICE.get(code, LOOK)}"
    )
    error.code = code
    if isinstance(error, Passing):
        error.is_away = code == AWAY
    return error


def failure(code: str, text: str, where: str, is_over: bool) -> StoreError:
    """Return the error to raise if an error came instead of a reply.

    If the connection has ended, the statement may have been performed, and the error is `ConnectionEnded`.

    Args:
        code, text, where: as for `refusal`.
        is_over: True if the connection has ended.
    """
    if is_over or not code or (code[:2] in ("08", "57") and code not in ("57014", AWAY)):
        return ended(where, StoreError(text))
    return refusal(code, text, where)


def not_connected(error: BaseException, where: str) -> StoreError:
    """Return the error to raise for a failure to connect; libpq reports the reason only as text."""
    text = str(error).strip() or type(error).__name__
    if any(words in text for words in _FULL):
        return NoRoom(f"{where} refused: {text} ({FULL}); {_ADVICE[FULL]}")
    for code, words in _DENIED:
        if getattr(error, "sqlstate", None) == code or (words in text and "FATAL" in text):
            return Denied(f"{where} refused: {text} ({code}); {_ADVICE[code]}")
    return Unreachable(f"{where} can't be reached: {text}; {LOOK}")
