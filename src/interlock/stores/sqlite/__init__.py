"""sqlite:// or an SQLAlchemy engine: locks between the processes of one machine, in a file of SQLite."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.store import ALL, Feature
from interlock.runtime import clock

__all__ = ["SqliteStore", "from_client"]


class SqliteStore:
    """A store in a file of SQLite.

    Args:
        options: which file.
    """

    features: frozenset[Feature] = ALL
    frees_at_death = False
    in_process = False
    now = staticmethod(clock.now)

    def __init__(self, options: Any) -> None:
        self._options = options

    @classmethod
    def from_url(cls, url: SplitResult) -> "SqliteStore":
        """Connect to sqlite:////PATH."""
        from interlock.stores.sqlite.options import options_of

        return cls(options_of(url))

    def _steps(self) -> Any:
        from interlock.stores.sqlite.database import database_of

        return database_of(self._options)

    def queue(self) -> Any:
        """As `Store.queue`."""
        from interlock.remote.neighbours import neighbours
        from interlock.stores._sync.step_queue import StepQueue

        return StepQueue(self._steps(), neighbours.waiters)

    def aqueue(self) -> Any:
        """As `Store.aqueue`."""
        from interlock.remote.neighbours import neighbours
        from interlock.stores._async.step_queue import AsyncStepQueue
        from interlock.stores.offloaded import OffloadedSteps

        return AsyncStepQueue(OffloadedSteps(self._steps()), neighbours.waiters)


def from_client(client: Any, tasks: bool) -> SqliteStore:
    """Return the store in a file beside the database of an SQLAlchemy engine; the engine itself is not used.

    Args:
        client: an `Engine` or `AsyncEngine` of sqlite.
        tasks: either will do.
    """
    from interlock.stores.sqlite.options import options_beside

    return SqliteStore(options_beside(client))
