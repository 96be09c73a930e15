"""What may go wrong on a database, and what is to be done about it."""

from interlock.core.errors import StoreError, UnknownOutcome

ISOLATION = "IL001"  # raised by our own functions
READ_ONLY = "25006"
TABLE = "42P01"
FUNCTION = "42883"
SCHEMA = "3F000"
IN_TRANSACTION = ("25001", "25P02")
FULL = "53300"
PROTOCOL = "08P01"
ONE_BY_ONE = "transaction blocks not allowed in statement pooling mode"  # PgBouncer's words

_ADVICE = {
    ISOLATION: "its steps need the isolation level read committed, which could not be had",
    READ_ONLY: "this server or role may only read: connect to the primary, with a role that may write",
    TABLE: "the table of locks is not there: connect once with ?create=true as a role that may make it, or run what "
    "`python -m interlock.stores.sql` prints; if it has another place, say so by ?schema= and ?table=",
    "42501": "this role may not do that: GRANT it SELECT, INSERT, UPDATE, DELETE on the table of locks, "
    "SELECT, INSERT on the one called …_alive, EXECUTE on the functions and USAGE on the schema; if the table is not "
    "there yet, let its owner run what `python -m interlock.stores.sql` prints",
    PROTOCOL: "a pooler in statement mode allows no transactions, for the table or another isolation than the "
    "default: run what `python -m interlock.stores.sql` prints past the pooler, and let the role have the defaults "
    "read committed and read-write; or let the pooler be in transaction mode",
    "28P01": "user name or password is wrong",
    "28000": "the server does not let this user in: look at its pg_hba.conf",
    "3D000": "there is no such database",
    FULL: "the server, database, role or pooler has as many connections as it may have: raise its limit, or let the "
    "processes have fewer (?max_connections=)",
    "53100": "the disk of the server is full",
    "57P03": "the server is starting or stopping: try again in a moment",
    "57014": "the server cancelled the step: is the role's statement_timeout shorter than a commit takes?",
    "26000": "a pooler lies between, which gives each transaction another session, and the driver prepares its "
    "statements: let the connect_args of an engine of asyncpg have statement_cache_size=0",
    "55P03": "another step of the same name took longer than the role's lock_timeout",
}
_ADVICE["42P05"] = _ADVICE["26000"]
_ADVICE[FUNCTION] = _ADVICE[SCHEMA] = _ADVICE[TABLE]
_PASSING = ("40001", "40P01", "55P03", "57014", "57P03")
_PASSING_CLASSES = ("53", "58")  # resources, and the system below
AT_ONCE = ("40001", "40P01", "55P03", "57014")
"""Others were in the way, or it took too long for that: the step was undone, and can be asked for again at once."""


class Refused(StoreError):
    """The database answered, and did nothing.

    Attributes:
        code: its SQLSTATE.
    """

    code = ""


class Passing(Refused):
    """The database refuses now, but may not do so soon."""


class Full(Passing):
    """The server makes no connection, since it has as many as it may have."""


class Unreachable(Passing):
    """No connection could be made: nothing was sent."""


def advice(code: str) -> str:
    """Return what to do about an SQLSTATE."""
    return _ADVICE.get(code, "look at the server's log")


def refusal(code: str, text: str, where: str) -> Refused:
    """Return what an error of the database means.

    Args:
        code: its SQLSTATE.
        text: what the database said.
        where: which database, without a password.
    """
    passes = code in _PASSING or code[:2] in _PASSING_CLASSES
    kind = Full if code == FULL else Passing if passes else Refused
    error = kind(f"{where} refused: {text} ({code}); {advice(code)}")
    error.code = code
    return error


def breaks(code: str) -> bool:
    """Tell whether an SQLSTATE, or none, means that the connection has ended, so that nobody knows what was done."""
    return not code or (code[:2] in ("08", "57") and code not in ("57014", "57P03"))


def broken(where: str, why: object) -> Refused | UnknownOutcome:
    """Return the error of a connection that ended before the answer came; a pooler that ends it may have said why."""
    if ONE_BY_ONE in str(why):
        return refusal(PROTOCOL, ONE_BY_ONE, where)
    return UnknownOutcome(f"the connection to {where} ended before the answer came: {why}")


def none_free(most: int, whose: str, where: str, seconds: float) -> Passing:
    """Return the error of a pool all of whose connections are in use.

    Args:
        most: how many it may have.
        whose: "process" or "loop".
        where: which database, without a password.
        seconds: for how long one was waited for.
    """
    return Passing(
        f"all {most} connections of this {whose} to {where} were in use for {seconds:g} s: is it overloaded? Else "
        f"let it have more (?max_connections=)"
    )


def no_answer(where: str, seconds: float) -> UnknownOutcome:
    """Return the error of a database that does not answer in time."""
    return UnknownOutcome(f"{where} did not answer within {seconds:g} s: is it overloaded, paused, or cut off?")
