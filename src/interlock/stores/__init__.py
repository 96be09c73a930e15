"""The stores, and the choice of one for a SQLAlchemy engine."""

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
    """Return the store for the database of a SQLAlchemy engine, chosen by its dialect.

    The PostgreSQL store gets every unknown object, and refuses it with an error that says what is supported.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    store: Store = import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks)
    return store
