"""What a URL, or an engine of SQLAlchemy, says about a database and the table of locks in it."""

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NamedTuple
from urllib.parse import SplitResult

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import is_torn, masked, place_of, read, whole
from interlock.stores.postgresql.ddl import GRACE, TABLE, ddl
from interlock.stores.sql.urls import check, conninfo_of, options_in

IO_TIMEOUT = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process for its steps, besides the one that listens
PREFIX = "interlock_"  # of the execution options of an engine that are for its locks
_OURS = ("table", "schema", "create", "grace", "max_connections", "timeout")
_DEFAULTS = {
    "application_name": "interlock", "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3,
    "client_encoding": "utf8",
}  # fmt: skip


class PostgresOptions(NamedTuple):
    """What is said about a store.

    Attributes:
        table, schema: where the lines are kept.
        create: True to make the table and the functions if they are not there.
        grace: seconds, as for `ddl`, where the table is made.
        most: connections for steps.
        io_timeout: seconds to wait for an answer.
        where: the database, without a password.
        torn: True if what libpq says may repeat a part of the password.
        arguments: returns with what psycopg connects.
        dial: returns a new connection of psycopg; awaited for tasks. None: psycopg connects.
        blocks: True if `arguments` may take its time.
    """

    table: str
    schema: str
    create: bool
    grace: float
    most: int
    io_timeout: float
    where: str = ""
    torn: bool = False
    arguments: Callable[[], dict[str, Any]] = dict
    dial: Callable[[], Any] | None = None
    blocks: bool = False


def options_of(url: SplitResult) -> PostgresOptions:
    """Return what a URL says.

    Raises:
        InvalidArgument: a value makes no sense, or stands there twice.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> PostgresOptions:
    ours: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in options_in(url):
        if name not in _OURS:
            others.append((name, value))
        elif name in ours or not value:
            raise InvalidArgument(f"{masked(whole(url))!r}: give {name} one value")
        else:
            ours[name] = value
    options = _options(ours)
    conninfo = conninfo_of(url, others)
    check(conninfo, url)

    def arguments() -> dict[str, Any]:
        from psycopg.conninfo import conninfo_to_dict

        return {**_DEFAULTS, **conninfo_to_dict(conninfo)}

    where = place_of(url._replace(scheme="postgresql"))
    return options._replace(where=where, torn=is_torn(url), arguments=arguments)


def _options(given: Mapping[str, str]) -> PostgresOptions:
    grace = given.get("grace", str(GRACE))
    try:
        options = PostgresOptions(
            given.get("table", TABLE), given.get("schema", ""), flag_in("create", given.get("create", "true")),
            float(grace), number_in("max_connections", given.get("max_connections", str(MOST))),
            seconds_in("timeout", given.get("timeout", str(IO_TIMEOUT))),
        )  # fmt: skip
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        raise InvalidArgument(f"grace is a number of seconds, not {said(grace)}") from None
    ddl(options.table, options.schema, options.grace)  # which refuses what makes no sense
    return options


def with_secrets(
    options: PostgresOptions, password: Callable[[], str] | None, dial: Callable[[], Any] | None
) -> PostgresOptions:
    """Return options with what the program does itself.

    Args:
        options: as a URL or an engine says.
        password: returns the password for the next connection.
        dial: returns a new connection of psycopg, in autocommit; awaited for tasks.
    """
    if password is None:
        return options._replace(dial=dial)
    arguments, secret = options.arguments, password
    return options._replace(arguments=lambda: arguments() | {"password": secret()}, dial=dial, blocks=True)


def connecting(arguments: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return with what psycopg connects in time; of several hosts each may take the same share.

    Args:
        arguments: as the program gives them.
        seconds: that are left.
    """
    hosts = str(arguments.get("host") or arguments.get("hostaddr") or "").count(",") + 1
    return {"connect_timeout": max(2, math.ceil(seconds / hosts)), **arguments}


# -- an engine ---------------------------------------------------------------------------------------------------------


class _Arguments(Exception):
    """With what the driver of an engine would have been called."""


_asking: ContextVar[bool] = ContextVar("_asking", default=False)


def options_of_engine(client: Any) -> PostgresOptions:
    """Return what an SQLAlchemy engine says: the URL, the arguments and the execution options; its hooks are asked each time.

    Args:
        client: an `Engine` or `AsyncEngine` of psycopg; it stays the program's, and its pool is left alone.

    Raises:
        InvalidArgument: it is none, or it does not say where the database is.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    engine = getattr(client, "sync_engine", client)
    if not isinstance(engine, Engine):
        raise InvalidArgument(
            f"{type(client).__name__} is no Engine and no AsyncEngine: locks are taken on connections of their own, since a "
            f"claim inside a transaction is seen by nobody"
        )
    if engine.dialect.driver not in ("psycopg", "psycopg_async"):
        raise InvalidArgument(
            f"locks need an engine of postgresql+psycopg://, not {engine.dialect.name}+{engine.dialect.driver}://: "
            f"give interlock the URL, and it connects by psycopg 3, beside the driver of the program"
        )
    creator = getattr(engine.pool, "_creator", None)
    if getattr(creator, "__qualname__", "") != "create_engine.<locals>.connect":
        raise InvalidArgument(
            "this engine has a `creator`, so that it does not say where its database is, and what it returns may be the "
            "program's own connection: give interlock the URL, with password= or dial= for what the URL can't say"
        )
    if not event.contains(engine, "do_connect", _answer):
        event.listen(engine, "do_connect", _answer)
    options = _options(_given_by(engine))
    where = masked(str(engine.url.set(query={}).render_as_string(hide_password=True)))
    return options._replace(where=where, arguments=lambda: _DEFAULTS | _arguments_of(engine), blocks=True)


def _given_by(engine: Any) -> dict[str, str]:
    given = {}
    for each, value in engine.get_execution_options().items():
        name = each.removeprefix(PREFIX)
        if each == name:
            continue
        if name not in _OURS:
            there = ", ".join(PREFIX + name for name in _OURS)
            raise InvalidArgument(f"an engine has no execution option {each} for its locks; there are {there}")
        given[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


def _arguments_of(engine: Any) -> dict[str, Any]:
    """Return what libpq is told by an engine now, after the program's hooks on `do_connect`."""
    from psycopg.pq import Conninfo

    token = _asking.set(True)
    try:
        engine.pool.recreate().connect().invalidate()
    except _Arguments as answer:
        known = {option.keyword.decode() for option in Conninfo.get_defaults()}
        return {name: value for name, value in answer.args[0].items() if name in known}
    finally:
        _asking.reset(token)
    raise InvalidArgument("a hook on `do_connect` of this engine connects by itself: give interlock the URL, and dial=")


def _answer(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> None:
    if _asking.get():
        raise _Arguments(dict(given))
