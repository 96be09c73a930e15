"""Which store an SQLAlchemy engine means."""

from importlib import import_module
from typing import Any

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
}


def from_client(client: Any, tasks: bool) -> Any:
    """Return the store in the database of an engine, by its dialect; each refuses what is no engine of its own.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    return import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks)
