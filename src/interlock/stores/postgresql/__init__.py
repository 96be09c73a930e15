"""postgresql:// or a SQLAlchemy engine: locks in PostgreSQL, one round trip per step."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.errors import install
from interlock.core.queue import ALL
from interlock.storekit.store import Store, require_module

if TYPE_CHECKING:
    from interlock.stores.postgresql.options import PostgresOptions

NEEDS = ("psycopg", f"Locks in PostgreSQL need psycopg 3. Run: {install('sql')}")


class PostgresStore(Store):
    """A PostgreSQL database.

    Args:
        options: how to connect, and the table.
    """

    features = ALL

    def __init__(self, options: "PostgresOptions") -> None:
        self._options = options

    @classmethod
    def from_url(
        cls,
        url: SplitResult,
        password: Callable[[], str] | None = None,
        dial: Callable[[], object] | None = None,
    ) -> "PostgresStore":
        """Connect to the database that a URL names.

        Args:
            url: a URL of libpq, with additional options of interlock.
            password: returns the password for the next connection.
            dial: returns a new connection of psycopg; awaited for tasks.
        """
        require_module(*NEEDS)
        from interlock.stores.postgresql.options import options_of, with_secrets

        return cls(with_secrets(options_of(url), password, dial))

    def queue(self) -> Queue:
        """See `Store.queue`."""
        from interlock.stores.postgresql._sync.queue import PostgresQueue

        return PostgresQueue(self._options)

    def aqueue(self) -> AsyncQueue:
        """See `Store.aqueue`."""
        from interlock.stores.postgresql._async.queue import AsyncPostgresQueue

        return AsyncPostgresQueue(self._options)


def from_client(client: object, tasks: bool) -> PostgresStore:
    """Return the store in the database of a SQLAlchemy engine of the program.

    Args:
        client: an `Engine` or `AsyncEngine` of psycopg 3; the store makes its own connections with its arguments.
        tasks: ignored: either kind of engine works for threads and tasks.
    """
    require_module(*NEEDS)
    from interlock.stores.postgresql.options import options_of_engine

    return PostgresStore(options_of_engine(client))
