"""The options of a URL or an engine, the connection by PyMySQL, and the meaning of its errors."""

import encodings.idna  # noqa: F401 - the first host name would import it, which hangs in a child forked meanwhile
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, unquote_to_bytes

import pymysql  # type: ignore[import-untyped]

from interlock.core.claims import DEFAULT_TTL
from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.failures import Denied, NoRoom, Refused, TransientRefusal, Unreachable, ended
from interlock.core.options import Options, Reader, flag_in, number_in, read_options, seconds_in, text_in
from interlock.core.redaction import CAUSE_HIDDEN, is_torn, place_of, reads_url
from interlock.drivers.urls import arguments_of, engine_of, given_by, place_of_engine, port_of
from interlock.stores.mysql import TABLE, checked_table

TOO_MANY_CONNECTIONS = ("1040", "1203", "1226")
NO_TABLE = "1146"
READ_ONLY = ("1290", "1792", "1836")
ENDED = (1053, 1927)  # the server is stopping, or the connection was killed: the statement may have been performed
WAITED = "1205"  # for a locked row or table
CONFLICT_CODES = ("1020", WAITED, "1213", "1317")
"""Other transactions interfered, or the statement was cancelled: it can be retried."""

_MANY = "The server or account has no free connection. Raise its max_connections, or lower ?max_connections= in "
_MANY += "the processes."
_WRITE = "The server or account is read-only. Connect to the primary."
_ADVICE = dict.fromkeys(TOO_MANY_CONNECTIONS, _MANY) | dict.fromkeys(READ_ONLY, _WRITE)
_ADVICE |= {
    NO_TABLE: "The table of locks is missing. Connect once without ?create=false as an account that may create it, "
    "or run the output of `python -m interlock.stores.mysql`, or give its name by ?table=.",
    "1044": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks.",
    "1045": "Account or password is wrong. Check both.",
    "1049": "The database does not exist. Check its name.",
    "1142": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks.",
    "1143": "GRANT this account SELECT, INSERT, UPDATE, DELETE on the table of locks.",
    "1205": "The row or table was locked for too long. Look for LOCK TABLES, a backup, or another transaction.",
    "1969": "Check that max_statement_time is longer than a commit.",
}
_TRANSIENT = (*TOO_MANY_CONNECTIONS, *CONFLICT_CODES, "1021", "1037", "1038", "1041", "1114", "1969", "3024")


def refusal(number: object, text: str, where: str) -> Refused:
    """Return the error to raise for an error of the server.

    Args:
        number: the error number.
        text: the server's message.
        where: the database, without a password.
    """
    code = str(number)
    kind = NoRoom if code in TOO_MANY_CONNECTIONS else TransientRefusal if code in _TRANSIENT else Refused
    error = kind(f"{where} refused: {text} ({code}). {_ADVICE.get(code, 'Check the error log of the server.')}")
    error.code = code
    return error


def _refused(error: BaseException, where: str) -> Refused | None:
    """Return the error for an exception of PyMySQL with a reply of the server, else None."""
    number = error.args[0] if error.args else None
    if (
        isinstance(error, pymysql.MySQLError)
        and not isinstance(error, pymysql.err.InterfaceError)
        and isinstance(number, int)
        and not 2000 <= number < 3000
        and number not in (0, *ENDED)
    ):
        return refusal(number, str(error.args[-1]), where)
    return None


def meaning(error: BaseException, where: str) -> StoreError:
    """Return the error to raise for an error during a statement."""
    return _refused(error, where) or ended(where, error)


def _not_connected(error: BaseException, where: str) -> StoreError:
    """Return the error to raise for a failed connection, or a missing package."""
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return StoreError(f"Cannot connect to {where}: the login of this account needs {CRYPTOGRAPHY} ({error})")
    found = _refused(error, where)
    if found is None:
        told = error.args[-1] if error.args else error
        return Unreachable(f"Cannot connect to {where}: {told}. Check that the server is running.")
    return found if isinstance(found, TransientRefusal) else Denied(str(found))


PORT = 3306
CRYPTOGRAPHY = "the package cryptography. Run pip install cryptography, or let the account log in by TLS."
FAILURES = (pymysql.Error, OSError, UnicodeError, RuntimeError)
"""The exceptions of a failed connection, host name encoding, or missing package."""


def arguments_in(url: SplitResult, given: Mapping[str, object], timeout: float) -> Options:
    """Return the arguments of PyMySQL for the connections to a URL.

    Args:
        url: the server, the account and the database.
        given: its options, of which those of `CONNECTING` count.
        timeout: seconds to wait for a reply.

    Raises:
        InvalidArgument: the port is not a number.
    """
    how = {
        "host": url.hostname or "localhost",
        "port": port_of(url) or PORT,
        "user": unquote(url.username or ""),
        "password": unquote_to_bytes(url.password or ""),  # bytes, because PyMySQL would encode text as Latin-1
        "database": unquote(url.path.lstrip("/")),
    }
    how |= usual(timeout) | {name: given[name] for name in CONNECTING if name in given}
    secured = any(name.startswith("ssl") for name in how)
    if not secured and (how["host"] in _NEAR or "unix_socket" in how):
        how["ssl_disabled"] = True  # otherwise PyMySQL loads all CA certificates of the system for each connection
    return how


def dialled(how: Mapping[str, object], where: str, password_may_leak: bool) -> object:
    """Return a new connection of PyMySQL.

    Args:
        how: its arguments.
        where: the database, without a password.
        torn: True if an error of PyMySQL may repeat part of the password.

    Raises:
        Unreachable: no server replies.
        StoreError: the server refuses the login, or accepts no more connections now.
    """
    try:
        return pymysql.connect(**how)
    except FAILURES as error:
        if not password_may_leak:
            raise _not_connected(error, where) from error
    # Outside of the except clause, because the chained error could show part of the password.
    raise Unreachable(f"Cannot connect to {where}. {CAUSE_HIDDEN}")


IO_TIMEOUT = 5.0  # seconds to wait for a reply
MAX_CONNECTIONS = 4  # connections of a process
_NEAR = ("localhost", "127.0.0.1", "::1")
CONNECTING: dict[str, Reader] = {
    "unix_socket": text_in,
    "ssl_ca": text_in,
    "ssl_cert": text_in,
    "ssl_key": text_in,
    "ssl_verify_cert": flag_in,
    "ssl_verify_identity": flag_in,
}
_OWN_OPTIONS: dict[str, Reader] = {
    "table": lambda name, text: checked_table(text),
    "create": flag_in,
    "max_connections": number_in,
    "timeout": seconds_in,
    "grace": seconds_in,
}
_NAMES = {"db": "database", "passwd": "password"}


class MysqlOptions(NamedTuple):
    """The options of a URL or an engine.

    Attributes:
        where: the database, without a password.
        dial: returns a new connection of PyMySQL.
        table: the table of the lines.
        create: True to create the table if it does not exist.
        max_connections: maximum number of connections of a process.
        timeout: seconds to wait for a reply.
        grace: seconds without grants after the start of a server that can lose commits in a crash.
    """

    where: str
    dial: Callable[[], Any]
    table: str = TABLE
    create: bool = True
    max_connections: int = MAX_CONNECTIONS
    timeout: float = IO_TIMEOUT
    grace: float = DEFAULT_TTL


def options_of(
    url: SplitResult, password: Callable[[], str] | None = None, dial: Callable[[], object] | None = None
) -> MysqlOptions:
    """Read a URL.

    Args:
        url: mysql://user:password@host:port/database?options.
        password: returns the password for the next connection.
        dial: returns a new connection of PyMySQL; the store closes it.

    Raises:
        InvalidArgument: the URL has an unknown option, or names no database.
    """
    where, password_may_leak = place_of(url), is_torn(url)
    given, how = _read(url)
    if not how["database"] and dial is None:
        raise InvalidArgument(f"{where}: the database is missing. Write mysql://user:password@host/database.")

    def connect() -> object:
        return dialled(how if password is None else how | {"password": password()}, where, password_may_leak)

    return _options(where, dial or connect, given)


@reads_url
def _read(url: SplitResult) -> tuple[Options, Options]:
    given = read_options(parse_qsl(url.query, keep_blank_values=True), _OWN_OPTIONS | CONNECTING, place_of(url))
    return given, arguments_in(url, given, given.get("timeout", IO_TIMEOUT))


def usual(timeout: float) -> Options:
    """Return the common arguments of all PyMySQL connections.

    Args:
        timeout: seconds to wait for a reply.
    """
    limits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), math.ceil(timeout))
    return {"charset": "utf8mb4", "program_name": "interlock", "autocommit": True, **limits}


def _options(where: str, dial: Callable[[], object], given: Mapping[str, Any]) -> MysqlOptions:
    return MysqlOptions(where, dial, **{name: value for name, value in given.items() if name in _OWN_OPTIONS})


def options_of_engine(client: object) -> MysqlOptions:
    """Return the options of a SQLAlchemy engine; its `do_connect` hooks run for each connection.

    Args:
        client: an `Engine` or `AsyncEngine` of PyMySQL, aiomysql or asyncmy; the store does not use its pool.

    Raises:
        InvalidArgument: the object is not such an engine, or hides its database.
    """
    engine = engine_of(client, ("pymysql", "aiomysql", "asyncmy"), "mysql", "PyMySQL")
    where = place_of_engine(engine)
    given = read_options(given_by(engine), _OWN_OPTIONS, where)
    known = set(inspect.signature(pymysql.connect).parameters) - {"cursorclass", "conv"}

    def connect() -> object:
        said = {_NAMES.get(name, name): value for name, value in arguments_of(engine).items() if value is not None}
        wanted = {name: value for name, value in said.items() if name in known}
        return dialled(usual(options.timeout) | wanted, where, False)

    options = _options(where, connect, given)
    return options
