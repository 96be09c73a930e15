"""A lock on one of several items."""

from interlock.client._async.grants import AsyncGrant
from interlock.client._async.lock import AsyncLock
from interlock.client.arguments import refuse_other_items
from interlock.client.cancel import SupportsIsSet
from interlock.runtime import _aio as rt


class AsyncOneOf(AsyncLock):
    """A lock on one of several items; `grant.item` names the item."""

    async def _take(
        self, seconds: float | None, owner: rt.Caller, cancel: SupportsIsSet | None = None
    ) -> AsyncGrant | None:
        refuse_other_items(self._spec.label, await self._client.look(self._spec.key), None)
        grant = await self._client.acquire(self._spec, self._options, seconds, owner, cancel)
        if grant is not None:
            try:
                refuse_other_items(self._spec.label, await self._client.look(self._spec.key), grant.fence)
            except BaseException:
                await rt.finish(grant.release)
                raise
        return grant
