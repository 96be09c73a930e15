"""A queue around another queue, with a fault."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core._async.acquire import AsyncQueue
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Held, Renewed
from interlock.runtime import _aio as rt


class AsyncFaultyQueue:
    """A queue that passes each step to another queue, through the methods of a fault.

    Args:
        queue: the real queue.
        fault: an `Around` of `testing.faults`.
    """

    def __init__(self, queue: Any, fault: Any) -> None:
        self._queue: AsyncQueue = queue
        self._fault = fault
        self.node_of, self.rest, self.set_doubt = queue.node_of, queue.rest, queue.set_doubt
        self.subscribe, self.abort, self.namespaces = queue.subscribe, queue.abort, queue.namespaces

    async def _through(self, step: str, function: Callable[..., rt.Result[Any]], *args: Any) -> Any:
        fault = self._fault
        args = fault.before(step, args)
        seconds = fault.pause_before(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        answer = fault.instead(step, args)
        if answer is None:
            answer = await function(*args)
        seconds = fault.pause_after(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        return fault.after(step, args, answer)

    async def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        result: EnterResult = await self._through("enter", self._queue.enter, claim, waiter, wait, again)
        return result

    async def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        return bool(await self._through("leave", self._queue.leave, claim, done, value))

    async def kept(self, key: str) -> str | None:
        return await self._queue.kept(key)

    async def forget(self, key: str) -> bool:
        return await self._queue.forget(key)

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(await self._through("renew", self._queue.renew, claims))

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        held: Held | None = await self._through("adopt", self._queue.adopt, key, id, claim, detached)
        return held

    async def look(self, key: str) -> list[ClaimView]:
        return list(await self._through("look", self._queue.look, key))

    async def evict(self, key: str, id: str | None) -> int:
        return int(await self._through("evict", self._queue.evict, key, id))

    async def doctor(self) -> list[Check]:
        queue: Any = self._queue
        return list(await queue.doctor())

    async def aclose(self) -> None:
        self._fault.closed = True
        queue: Any = self._queue
        await queue.aclose()
