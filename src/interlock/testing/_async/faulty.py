"""A queue around another queue, with a fault."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core._async.protocols import AsyncQueue, AsyncWaiting
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Held, Renewed, Wakeable
from interlock.runtime import _aio as rt
from interlock.testing.fault import Fault


class AsyncFaultyQueue(AsyncQueue):
    """A queue that passes each step to another queue, through the methods of a fault.

    Args:
        queue: the real queue.
        fault: the fault.

    Attributes:
        verify: asks the store about a claim; of the watchdog.
    """

    def __init__(self, queue: AsyncQueue, fault: Fault) -> None:
        self._queue = queue
        self._fault = fault
        self.verify: Callable[[str], bool] = lambda id: False
        queue.watch_doubts(self._verify)

    async def _pass(self, step: str, perform: Callable[..., rt.Result[Any]], *args: object) -> Any:
        """Perform one step through the methods of the fault."""
        fault = self._fault
        args = fault.before(step, args)
        seconds = fault.pause_before(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        answer = fault.instead(step, args)
        if answer is None:
            answer = await perform(*args)
        seconds = fault.pause_after(step, args)
        if seconds is not None:
            await rt.sleep(seconds)
        return fault.after(step, args, answer)

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        answer: EnterResult = await self._pass("enter", self._queue.enter, claim, waiter, may_queue, already_queued)
        return answer

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        return bool(await self._pass("leave", self._queue.leave, claim, keep_for, stored_result))

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        answers: list[Renewed] = await self._pass("renew", self._queue.renew, claims)
        return answers

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        held: Held | None = await self._pass("adopt", self._queue.adopt, key, id, claim, detached)
        return held

    async def look(self, key: str) -> list[ClaimView]:
        views: list[ClaimView] = await self._pass("look", self._queue.look, key)
        return views

    async def evict(self, key: str, id: str | None) -> int:
        return int(await self._pass("evict", self._queue.evict, key, id))

    async def delete_run_result(self, key: str) -> bool:
        return bool(await self._pass("delete_run_result", self._queue.delete_run_result, key))

    async def run_result(self, key: str) -> str | None:
        return await self._queue.run_result(key)

    async def namespaces(self) -> list[str]:
        return await self._queue.namespaces()

    async def doctor(self) -> list[Check]:
        return await self._queue.doctor()

    def subscribe(self) -> AsyncWaiting:
        return self._queue.subscribe()

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        self.verify = verify

    def _verify(self, id: str) -> bool:
        return self.verify(id)

    def node_of(self, claim: Claim) -> object:
        return self._queue.node_of(claim)

    def let_go(self, id: str) -> object:
        return self._queue.let_go(id)

    def close_idle(self) -> object:
        return self._queue.close_idle()

    async def aclose(self) -> None:
        self._fault.closed = True
        await self._queue.aclose()

    def abort(self) -> None:
        self._queue.abort()
