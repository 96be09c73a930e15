"""postgresql+advisory://, mysql+advisory://: locks that end with their session."""

import sys
from urllib.parse import SplitResult

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.errors import StoreError
from interlock.storekit.store import Store, require_module
from interlock.stores import mysql, postgresql
from interlock.stores.advisory.session import Options, options_of
from interlock.stores.advisory.session_manager import AdvisoryRoom, rooms


class AdvisoryStore(Store):
    """The advisory locks of PostgreSQL, or those of MariaDB.

    Args:
        options: the options of the URL.

    Raises:
        StoreError: the client library is missing, or the system is Windows.
    """

    frees_at_death = True

    def __init__(self, options: Options) -> None:
        if sys.platform == "win32":
            raise StoreError("Advisory locks need a POSIX system. Use postgresql:// here.")
        self._options = options
        self.features = frozenset(("order",) if options.mysql else ("readers",))
        # Imported now, because a child forked during another thread's import would wait for that import forever.
        if options.mysql:
            from interlock.stores.advisory.mariadb import MariaSession as Session
        else:
            from interlock.stores.advisory.postgres import PostgresSession as Session  # type: ignore[assignment]
        self._room = rooms.setdefault(options, AdvisoryRoom(options, Session))

    @classmethod
    def from_url(cls, url: SplitResult) -> "AdvisoryStore":
        """Return the store on the server of a URL; it opens sessions when needed."""
        require_module(*(postgresql if url.scheme.startswith("postgresql") else mysql).NEEDS)
        return cls(options_of(url))

    def queue(self) -> Queue:
        """See `Store.queue`."""
        from interlock.stores.advisory._sync.queue import AdvisoryQueue

        return AdvisoryQueue(self._room, self._room.kind.perform)

    def aqueue(self) -> AsyncQueue:
        """See `Store.aqueue`."""
        from interlock.stores.advisory._async.queue import AsyncAdvisoryQueue, blocking  # which load asyncio

        if self._options.mysql:
            return AsyncAdvisoryQueue(self._room, blocking)
        from interlock.stores.advisory._async.postgres import perform

        return AsyncAdvisoryQueue(self._room, perform)
