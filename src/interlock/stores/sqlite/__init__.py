"""sqlite:// or a SQLAlchemy engine: locks between the processes of one machine, in a SQLite file."""

from urllib.parse import SplitResult

from interlock.core.queue import ALL
from interlock.runtime import clock
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.stores.sqlite.database import database_of
from interlock.stores.sqlite.opening import SqliteOptions, options_beside, options_of

__all__ = ["SqliteStore", "from_client"]


class SqliteStore(BlockingStore):
    """A store in a SQLite file.

    Args:
        options: the file.
    """

    features = ALL
    now = staticmethod(clock.now)

    def __init__(self, options: SqliteOptions) -> None:
        self._options = options

    @classmethod
    def from_url(cls, url: SplitResult) -> "SqliteStore":
        """Return the store in the file of sqlite:////PATH; it is opened at first use."""
        return cls(options_of(url))

    def steps(self) -> StepStore:
        """See `BlockingStore.steps`."""
        return database_of(self._options)


def from_client(client: object, tasks: bool) -> SqliteStore:
    """Return the store in a file beside the database of a SQLAlchemy engine; the engine itself is not used.

    Args:
        client: an `Engine` or `AsyncEngine` of sqlite.
        tasks: ignored: the store works for threads and tasks.
    """
    return SqliteStore(options_beside(client))
