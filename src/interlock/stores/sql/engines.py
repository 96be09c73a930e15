"""Which store an SQLAlchemy engine means."""

from importlib import import_module
from typing import Any

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
    "sqlite": "interlock.stores.sqlite",
}


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
