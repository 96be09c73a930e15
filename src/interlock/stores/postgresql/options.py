"""The options of a URL or of a SQLAlchemy engine."""

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import SplitResult

from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from interlock.core.options import Options, Reader, flag_in, number_in, read_options, seconds_in, text_in
from interlock.core.redaction import is_torn, place_of, reads_url
from interlock.drivers.urls import (
    arguments_of,
    conninfo_of,
    engine_of,
    given_by,
    options_in,
    place_of_engine,
)
from interlock.stores.postgresql.ddl import GRACE, TABLE, ddl

IO_TIMEOUT = 5.0  # seconds to wait for a reply
MAX_CONNECTIONS = 4  # connections of a process for its steps, besides the one that listens


def _grace_in(name: str, text: str) -> float:
    return 0.0 if text == "0" else seconds_in(name, text)


_OWN_OPTIONS: dict[str, Reader] = {
    "table": text_in, "schema": text_in, "create": flag_in, "grace": _grace_in, "max_connections": number_in,
    "timeout": seconds_in,
}  # fmt: skip
CONNECTION_DEFAULTS = {
    "application_name": "interlock", "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "client_encoding": "utf8",
}  # fmt: skip
"""The default arguments of libpq."""


class PostgresOptions(NamedTuple):
    """The options of a store.

    Attributes:
        where: the database, without a password.
        table, schema: the table of the lines.
        create: True to create the table and the functions if they do not exist.
        grace: seconds, as for `ddl`; used when the table is created.
        max_connections: the maximum number of connections for steps.
        timeout: seconds to wait for a reply.
        torn: True if an error of libpq may repeat part of the password.
        arguments: returns the arguments with which psycopg connects.
        dial: returns a new connection of psycopg; awaited for tasks. None: psycopg connects.
        blocks: True if `arguments` may block, so that tasks call it in a worker thread.
    """

    where: str
    table: str = TABLE
    schema: str = ""
    create: bool = True
    grace: float = GRACE
    max_connections: int = MAX_CONNECTIONS
    timeout: float = IO_TIMEOUT
    password_may_leak: bool = False
    arguments: Callable[[], Options] = dict
    dial: Callable[[], Any] | None = None
    blocks: bool = False


@reads_url
def options_of(url: SplitResult) -> PostgresOptions:
    """Return the options of a URL.

    Raises:
        InvalidArgument: a value is not allowed, or repeated.
    """
    given = options_in(url)
    conninfo = conninfo_of(url, [each for each in given if each[0] not in _OWN_OPTIONS])

    def arguments() -> Options:
        return {**CONNECTION_DEFAULTS, **conninfo_to_dict(conninfo)}

    options = _options(
        [each for each in given if each[0] in _OWN_OPTIONS], place_of(url._replace(scheme="postgresql"))
    )
    return options._replace(password_may_leak=is_torn(url), arguments=arguments)


def _options(given: Iterable[tuple[str, str]], where: str) -> PostgresOptions:
    options = PostgresOptions(where, **read_options(given, _OWN_OPTIONS, where))
    ddl(options.table, options.schema, options.grace)  # raises if a value is not allowed
    return options


def with_secrets(
    options: PostgresOptions, password: Callable[[], str] | None, dial: Callable[[], object] | None
) -> PostgresOptions:
    """Return options with the program's own functions for the password or the connection.

    Args:
        options: the options of a URL or an engine.
        password: returns the password for the next connection.
        dial: returns a new connection of psycopg, in autocommit; awaited for tasks.
    """
    if password is None:
        return options._replace(dial=dial)
    arguments, secret = options.arguments, password
    return options._replace(arguments=lambda: arguments() | {"password": secret()}, dial=dial, blocks=True)


def connecting(arguments: Options, seconds: float) -> Options:
    """Return psycopg's arguments with a connect_timeout that leaves time for other addresses.

    Args:
        arguments: the program's arguments; their connect_timeout stays.
        seconds: the remaining time for all addresses; each gets at least two seconds.
    """
    others = str(arguments.get("host") or arguments.get("hostaddr") or "").count(",") + 1
    return {"connect_timeout": max(2, math.ceil(seconds / (others + 1))), **arguments}


def options_of_engine(client: object) -> PostgresOptions:
    """Return the options of a SQLAlchemy engine; its `do_connect` hooks run for each connection.

    Args:
        client: an `Engine` or `AsyncEngine` of psycopg.

    Raises:
        InvalidArgument: the object is not such an engine, or hides its database.
    """
    engine = engine_of(client, ("psycopg", "psycopg_async"), "postgresql", "psycopg 3")

    def arguments() -> Options:
        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        return CONNECTION_DEFAULTS | {name: value for name, value in arguments_of(engine).items() if name in known}

    options = _options(given_by(engine), place_of_engine(engine))
    return options._replace(arguments=arguments, blocks=True)
