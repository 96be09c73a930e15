"""The interface of a store, and the choice of a store for a SQLAlchemy engine."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, cast

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.claims import DEFAULT_TTL, MIN_TTL
from interlock.core.errors import StoreError
from interlock.core.queue import Feature
from interlock.runtime import clock

MAKERS = {
    "postgresql": "interlock.stores.postgresql",
    "mysql": "interlock.stores.mysql",
    "mariadb": "interlock.stores.mysql",
    "sqlite": "interlock.stores.sqlite",
}


class Store(Protocol):
    """A place for lines, and its connections; the defaults suit most servers.

    Attributes:
        features: the optional parts of the contract that it supports; a lock that needs another raises Unsupported.
        frees_at_death: True if the claims of a process end with the process, so that its exit need not release them.
            Unless the store is `in_process`, the claims of a queue then end with that queue too.
        in_process: True if its lines are in the memory of this process.
        now: the clock of the holders' leases, in seconds.
        shortest_ttl, default_ttl: seconds of the shortest lease that it accepts, and of the default lease.
    """

    features: frozenset[Feature] = frozenset()
    frees_at_death: bool = False
    in_process: bool = False
    now: Callable[[], float] = staticmethod(clock.awake_or_not)  # leases of a server run on during a suspension
    shortest_ttl: float = MIN_TTL
    default_ttl: float = DEFAULT_TTL

    def queue(self) -> Queue:
        """Return a new queue, for the threads of the calling process."""

    def aqueue(self) -> AsyncQueue:
        """Return a new queue, for the tasks of the running event loop."""


def require_module(module: str, need: str) -> None:
    """Import the client library of a store.

    Args:
        module: the library.
        need: what needs it, and how to install it.

    Raises:
        StoreError: the library, or a library that it needs, is not installed.
    """
    try:
        import_module(module)
    except ImportError as error:
        if "pq wrapper" in str(error):
            need = "psycopg cannot find libpq, the PostgreSQL client library. Run pip install 'psycopg[binary]'"
        raise StoreError(f"{need} ({' '.join(str(error).split())})") from error


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store for the database of a SQLAlchemy engine, by its dialect.

    The PostgreSQL store gets every unknown object, and refuses it with an error that says what is supported.

    Args:
        client: an `Engine` or `AsyncEngine`.
        tasks: True if asyncio tasks will use the store.
    """
    dialect = getattr(getattr(client, "dialect", None), "name", "")
    return cast("Store", import_module(MAKERS.get(dialect, MAKERS["postgresql"])).from_client(client, tasks))
