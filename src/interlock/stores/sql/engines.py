"""Which store an SQLAlchemy engine means, and connections of our own as it makes them."""

from contextvars import ContextVar
from importlib import import_module
from itertools import dropwhile
from typing import Any

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described, masked

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
    "sqlite": "interlock.stores.sqlite",
}
_limits: ContextVar[dict[str, int] | None] = ContextVar("_limits", default=None)


def from_client(client: Any, tasks: bool) -> Any:
    """Return the store in the database of an engine, by its dialect; each refuses what is no engine of its own.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    return import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks)


def engine_of(client: Any, tasks: bool) -> Any:
    """Return the engine that the program has, behind an `AsyncEngine` too.

    Raises:
        InvalidArgument: it is no engine, or one of the other colour.
    """
    from sqlalchemy.engine import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    wanted = AsyncEngine if tasks else Engine
    if not isinstance(client, wanted):
        raise InvalidArgument(
            f"{described(client)} is no {wanted.__name__}: {'aconnect' if tasks else 'connect'}() takes the engine, "
            f"as locks are taken on connections of their own: a claim inside a transaction is seen by nobody"
        )
    return client.sync_engine if isinstance(client, AsyncEngine) else client


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
    token = _limits.set(limits)
    try:
        fairy = engine.pool.recreate().connect()
        connection = fairy.driver_connection
        fairy.detach()
    finally:
        _limits.reset(token)
    return connection


def _connect(dialect: Any, record: Any, args: Any, given: dict[str, Any]) -> Any:
    """Connect with the limits of `detached`; None, as anybody else connects, without them."""
    limits = _limits.get()
    if limits is None:
        return None
    # The engine may give the same dict each time.
    wanted = given | {name: value for name, value in limits.items() if given.get(name) is None}
    token = _limits.set(None)
    try:
        # Those of the program that come after this one, which has the last word.
        for hook in dropwhile(lambda hook: hook is not _connect, dialect.dispatch.do_connect):
            connection = hook(dialect, record, args, wanted)
            if connection is not None:
                return connection
        return dialect.connect(*args, **wanted)
    finally:
        _limits.reset(token)


def place_of_engine(engine: Any) -> str:
    """Return which database an engine is for, without a password."""
    return masked(str(engine.url.set(query={}).render_as_string(hide_password=True)))
