"""The stores; and which of them an engine of SQLAlchemy means."""

from importlib import import_module
from typing import Any

from interlock.core.queue import Store

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
    "sqlite": "interlock.stores.sqlite",
}


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store in the database of an engine, by its dialect; each refuses what is no engine of its own.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    store: Store = import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks)
    return store
