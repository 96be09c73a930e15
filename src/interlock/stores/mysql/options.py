"""What a URL or an engine says about a database and the table of locks in it, and how PyMySQL is told."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl

import pymysql  # type: ignore[import-untyped]

from interlock.core.claims import DEFAULT_TTL
from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import is_torn, place_of, read
from interlock.remote.engines import arguments_of, checked_engine, engine_of, given_by, place_of_engine
from interlock.stores.mysql.dialling import arguments_in, dialled
from interlock.stores.mysql.table import TABLE, checked_table

IO_TIMEOUT = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process
_NEAR = ("localhost", "127.0.0.1", "::1")
_TLS = ("ssl_ca", "ssl_cert", "ssl_key", "ssl_verify_cert", "ssl_verify_identity")
_OURS = ("table", "create", "max_connections", "timeout", "grace")
_NAMES = {"db": "database", "passwd": "password"}


class MysqlOptions(NamedTuple):
    """How to connect, and what a URL or an engine says about the store.

    Attributes:
        where: which database, without a password.
        dial: returns a new connection of PyMySQL.
        table: where the lines are kept.
        create: True to make the table if it is not there.
        most: connections of a process.
        timeout: seconds to wait for an answer.
        grace: seconds that nobody gets a lock after a start of a server that forgets commits in a crash.
    """

    where: str
    dial: Callable[[], Any]
    table: str = TABLE
    create: bool = True
    most: int = MOST
    timeout: float = IO_TIMEOUT
    grace: float = DEFAULT_TTL


def options_of(
    url: SplitResult, password: Callable[[], str] | None = None, dial: Callable[[], object] | None = None
) -> MysqlOptions:
    """Read a URL.

    Args:
        url: mysql://user:password@host:port/database?options.
        password: returns the password for the next connection.
        dial: returns a new connection of PyMySQL, which becomes ours.

    Raises:
        InvalidArgument: it says what such a URL does not say.
    """
    where, torn = place_of(url), is_torn(url)
    given, how = read(url, lambda url: _read(url, where))
    if not how["database"] and dial is None:
        raise InvalidArgument(f"{where}: which database? mysql://user:password@host/database")

    def connect() -> Any:
        return dialled(how if password is None else how | {"password": password()}, where, torn)

    return _options(where, dial or connect, given)


def _read(url: SplitResult, where: str) -> tuple[dict[str, str], dict[str, Any]]:
    given: dict[str, str] = {}
    for name, value in parse_qsl(url.query, keep_blank_values=True):
        if name not in (*_OURS, *_TLS, "unix_socket"):
            raise InvalidArgument(
                f"{where}: there is no option {name}; there are {', '.join((*_OURS, *_TLS, 'unix_socket'))}"
            )
        if name in given or not value:
            raise InvalidArgument(f"{where}: give {name} one value")
        given[name] = value
    if url.fragment:
        raise InvalidArgument(f"{where}: a # in a password is written %23")
    how = arguments_in(url) | usual(seconds_in("timeout", given.get("timeout", str(IO_TIMEOUT))))
    how["unix_socket"] = given.get("unix_socket")
    tls = {name: given[name] for name in _TLS if name in given}
    how |= {name: flag_in(name, text) if "verify" in name else text for name, text in tls.items()}
    if not tls and (how["host"] in _NEAR or "unix_socket" in given):
        how["ssl_disabled"] = True  # else PyMySQL reads all certificates of the machine for each connection
    return given, how


def usual(timeout: float) -> dict[str, Any]:
    """Return the arguments of PyMySQL that are the same for all.

    Args:
        timeout: seconds to wait for an answer.
    """
    limits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), math.ceil(timeout))
    return {"charset": "utf8mb4", "program_name": "interlock", "autocommit": True, **limits}


def _options(where: str, dial: Callable[[], object], given: dict[str, str]) -> MysqlOptions:
    return MysqlOptions(
        where, dial, checked_table(given.get("table", TABLE)), flag_in("create", given.get("create", "true")),
        number_in("max_connections", given.get("max_connections", str(MOST))),
        seconds_in("timeout", given.get("timeout", str(IO_TIMEOUT))),
        seconds_in("grace", given.get("grace", str(DEFAULT_TTL))),
    )  # fmt: skip


def options_of_engine(client: object) -> MysqlOptions:
    """Return what an SQLAlchemy engine says: its arguments, as its hooks on `do_connect` leave them each time.

    Args:
        client: an `Engine` or `AsyncEngine` of PyMySQL, aiomysql or asyncmy; it stays the program's.

    Raises:
        InvalidArgument: it is none, or it does not say where the database is.
    """
    engine = engine_of(client)
    if engine.dialect.driver not in ("pymysql", "aiomysql", "asyncmy"):
        raise InvalidArgument(
            f"locks need an engine of mysql+pymysql://, not of {engine.dialect.name}+{engine.dialect.driver}://: "
            f"give interlock the URL mysql://…, and it connects by PyMySQL, beside the driver of the program"
        )
    checked_engine(engine)
    where, given = place_of_engine(engine), given_by(engine, _OURS)
    known = set(inspect.signature(pymysql.connect).parameters) - {"cursorclass", "conv"}

    def connect() -> Any:
        said = {_NAMES.get(name, name): value for name, value in arguments_of(engine).items() if value is not None}
        wanted = {name: value for name, value in said.items() if name in known}
        return dialled(usual(options.timeout) | wanted, where, False)

    options = _options(where, connect, given)
    return options
