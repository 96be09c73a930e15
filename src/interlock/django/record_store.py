"""`RecordStore`: locks by the ORM alone, on the table of records."""

from functools import partial

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.queue import Feature
from interlock.django.records import OrmRecords
from interlock.storekit.store import Store


class RecordStore(Store):
    """A store on the table of records.

    Args:
        alias: the alias of the database.
        most: the maximum number of connections of a process to it.
    """

    features: frozenset[Feature] = frozenset({"readers", "semaphores", "order", "waiters"})

    def __init__(self, alias: str, most: int) -> None:
        self._made = partial(OrmRecords, alias, most)

    def queue(self) -> Queue:
        """See `Store.queue`."""
        from interlock.django._sync.record_table import OrmTable
        from interlock.storekit._sync.record_queue import RecordQueue

        return RecordQueue(OrmTable(self._made()))

    def aqueue(self) -> AsyncQueue:
        """See `Store.aqueue`."""
        from interlock.django._async.record_table import AsyncOrmTable  # only with an event loop: loads asyncio
        from interlock.storekit._async.record_queue import AsyncRecordQueue

        return AsyncRecordQueue(AsyncOrmTable(self._made()))
