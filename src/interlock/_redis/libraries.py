"""How a client of redis-py or valkey-py is recognised; no library is imported."""

from inspect import iscoroutinefunction
from typing import Any

LIBRARIES = ("redis", "valkey")


def library_of(client: Any) -> str | None:
    """Return the name of the library that a client, or what its class is made of, comes from; None if from none."""
    names = (base.__module__.partition(".")[0] for base in type(client).__mro__)
    return next((name for name in names if name in LIBRARIES), None)


def is_async(client: Any) -> bool:
    """Tell whether a client is one of asyncio."""
    if iscoroutinefunction(getattr(client, "execute_command", None)):
        return True
    return any(".asyncio" in base.__module__ for base in type(client).__mro__)


def is_cluster(client: Any) -> bool:
    """Tell whether a client speaks to a cluster."""
    return hasattr(client, "nodes_manager")
