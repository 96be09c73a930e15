"""Which store an SQLAlchemy engine means, and connections of our own as it makes them."""

from collections.abc import Collection
from contextvars import ContextVar
from importlib import import_module
from itertools import dropwhile
from typing import Any, NamedTuple

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described, masked

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
    "sqlite": "interlock.stores.sqlite",
}
PREFIX = "interlock_"  # of the execution options of an engine that are for its locks


class _Ours(NamedTuple):
    """How a connection of our own is made.

    Attributes:
        limits: arguments of the driver, for those that the program gives none.
        asked: True if only the arguments are wanted.
    """

    limits: dict[str, int]
    asked: bool = False


class _Arguments(Exception):
    """With what the driver of an engine would have been called."""


_ours: ContextVar[_Ours | None] = ContextVar("_ours", default=None)


def from_client(client: Any, tasks: bool) -> Any:
    """Return the store in the database of an engine, by its dialect; each refuses what is no engine of its own.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    return import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks)


def engine_of(client: Any, tasks: bool, either: bool = False) -> Any:
    """Return the engine that the program has, behind an `AsyncEngine` too.

    Args:
        client: what the program has given.
        tasks: True if asyncio tasks will use the store.
        either: True if they may do so by an `Engine`, too.

    Raises:
        InvalidArgument: it is no engine, or one of the other colour.
    """
    from sqlalchemy.engine import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    wanted = ((Engine, AsyncEngine) if either else (AsyncEngine,)) if tasks else (Engine,)
    if not isinstance(client, wanted):
        raise InvalidArgument(
            f"{described(client)} is no {wanted[0].__name__}: {'aconnect' if tasks else 'connect'}() takes the "
            f"engine, as locks are taken on connections of their own: a claim inside a transaction is seen by nobody"
        )
    return client.sync_engine if isinstance(client, AsyncEngine) else client


def given_by(engine: Any, known: Collection[str]) -> dict[str, str]:
    """Return what the execution options of an engine say about its locks, as a URL says it.

    Args:
        engine: an `Engine`, or what `engine.execution_options(interlock_table=…)` made of one.
        known: names of options, without the prefix.

    Raises:
        InvalidArgument: there is no such option.
    """
    given = {}
    for each, value in engine.get_execution_options().items():
        if not each.startswith(PREFIX):
            continue
        name = each.removeprefix(PREFIX)
        if name not in known:
            there = ", ".join(PREFIX + name for name in known) or "none on this store"
            raise InvalidArgument(f"an engine has no execution option {each} for its locks; there are {there}")
        given[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return given


def limit(engine: Any) -> None:
    """Let `detached` limit the time of an engine's connections; those of the program stay as they are."""
    from sqlalchemy import event

    if not event.contains(engine, "do_connect", _connect):
        event.listen(engine, "do_connect", _connect)


def detached(engine: Any, limits: dict[str, int]) -> Any:
    """Return a connection of the driver, by a pool of our own: a full one of the program keeps nobody waiting.

    Args:
        engine: an `Engine` that `limit` was told of.
        limits: arguments of the driver, for those that the program gives none; a `creator` of the program gets none.
    """
    token = _ours.set(_Ours(limits))
    try:
        fairy = engine.pool.recreate().connect()
        connection = fairy.driver_connection
        fairy.detach()
    finally:
        _ours.reset(token)
    return connection


def arguments_of(engine: Any, limits: dict[str, int]) -> dict[str, Any] | None:
    """Return with what an engine calls its driver, after the hooks on `do_connect`; None if they don't let it.

    Args:
        engine, limits: as for `detached`.
    """
    token = _ours.set(_Ours(limits, asked=True))
    try:
        engine.pool.recreate().connect()
    except _Arguments as answer:
        given: dict[str, Any] = answer.args[0]
        return given
    except Exception as error:
        if type(error).__name__ != "MissingGreenlet":  # an async_creator of the program was called
            raise
    finally:
        _ours.reset(token)
    return None


def _connect(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> Any:
    """Connect as `detached` says; None, as anybody else connects, without it."""
    ours = _ours.get()
    if ours is None:
        return None
    # The engine may give the same dict each time.
    wanted = given | {name: value for name, value in ours.limits.items() if given.get(name) is None}
    token = _ours.set(None)
    try:
        # Those of the program that come after this one, which has the last word.
        for hook in dropwhile(lambda hook: hook is not _connect, dialect.dispatch.do_connect):
            connection = hook(dialect, record, args, wanted)
            if connection is not None:
                return connection
        if ours.asked:
            raise _Arguments(wanted)
        return dialect.connect(*args, **wanted)
    finally:
        _ours.reset(token)


def place_of_engine(engine: Any) -> str:
    """Return which database an engine is for, without a password."""
    return masked(str(engine.url.set(query={}).render_as_string(hide_password=True)))
