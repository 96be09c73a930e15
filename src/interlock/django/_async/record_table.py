"""The records in a database of Django, as the queue of records uses them."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from interlock.core.claims import Check, Claim, ClaimView, State
from interlock.core.queue import PendingRecord, Renewed
from interlock.django.records import POLL, OrmRecords
from interlock.runtime import _aio as rt
from interlock.storekit._async.record_queue import AsyncRecordTable

T = TypeVar("T")


class AsyncOrmTable(AsyncRecordTable):
    """The records of all lines in one database.

    Args:
        records: the requests.
    """

    poll_after = POLL

    def __init__(self, records: OrmRecords) -> None:
        self._records = records
        self._workers = records.workers

    async def _ask(self, request: Callable[..., T], *args: object) -> T:
        return await rt.offload(self._workers.do, request, *args)

    async def create(self, claim: Claim) -> None:
        await self._ask(self._records.create, claim)

    async def list(self, key: str) -> Sequence[PendingRecord]:
        return await self._ask(self._records.list_line, key)

    async def update(self, claim: Claim, state: State) -> bool:
        return await self._ask(self._records.update, claim, state)

    async def promote(self, claim: Claim) -> int | None:
        return await self._ask(self._records.promote, claim)

    async def delete(self, claim: Claim) -> bool:
        return await self._ask(self._records.delete, claim)

    async def reap(self, key: str, id: str) -> None:
        await self._ask(self._records.reap, id)

    async def renew(self, claims: Sequence[Claim]) -> Sequence[Renewed]:
        return await self._ask(self._records.renew, claims)

    async def look(self, key: str) -> Sequence[ClaimView]:
        return await self._ask(self._records.look, key)

    async def evict(self, key: str, id: str | None) -> int:
        return await self._ask(self._records.evict, key, id)

    async def namespaces(self) -> Sequence[str]:
        return await self._ask(self._records.namespaces)

    async def doctor(self) -> Sequence[Check]:
        return await rt.offload(self._records.doctor)

    def close_idle(self) -> None:
        self._workers.close_connections()

    async def aclose(self) -> None:
        await rt.offload(self._workers.close)

    def abort(self) -> None:
        self._workers.close()
