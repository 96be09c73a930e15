# Generated from _async/record_table.py by tools/unasync.py; change that one.
"""The records in a database of Django, as the queue of records uses them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from interlock.core.claims import Check, Claim, ClaimView, State
from interlock.core.queue import PendingRecord, Renewed
from interlock.django.records import POLL, OrmRecords
from interlock.runtime import _threads as rt
from interlock.storekit._sync.record_queue import RecordTable

T = TypeVar("T")


class OrmTable(RecordTable):
    """The records of all lines in one database.

    Args:
        records: the requests.
    """

    poll_after = POLL

    def __init__(self, records: OrmRecords) -> None:
        self._records = records
        self._workers = records.workers

    def _ask(self, request: Callable[..., T], *args: object) -> T:
        return rt.offload(self._workers.do, request, *args)

    def create(self, claim: Claim) -> None:
        self._ask(self._records.create, claim)

    def list(self, key: str) -> Sequence[PendingRecord]:
        return self._ask(self._records.list_line, key)

    def update(self, claim: Claim, state: State) -> bool:
        return self._ask(self._records.update, claim, state)

    def promote(self, claim: Claim) -> int | None:
        return self._ask(self._records.promote, claim)

    def delete(self, claim: Claim) -> bool:
        return self._ask(self._records.delete, claim)

    def reap(self, key: str, id: str) -> None:
        self._ask(self._records.reap, id)

    def renew(self, claims: Sequence[Claim]) -> Sequence[Renewed]:
        return self._ask(self._records.renew, claims)

    def look(self, key: str) -> Sequence[ClaimView]:
        return self._ask(self._records.look, key)

    def evict(self, key: str, id: str | None) -> int:
        return self._ask(self._records.evict, key, id)

    def namespaces(self) -> Sequence[str]:
        return self._ask(self._records.namespaces)

    def doctor(self) -> Sequence[Check]:
        return rt.offload(self._records.doctor)

    def close_idle(self) -> None:
        self._workers.close_connections()

    def close(self) -> None:
        rt.offload(self._workers.close)

    def abort(self) -> None:
        self._workers.close()
