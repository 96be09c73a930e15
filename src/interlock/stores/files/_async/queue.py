"""The queue of a folder; compiled code performs the common steps, if it is installed."""

from collections.abc import Callable
from functools import partial
from weakref import WeakMethod

from interlock.core._async.protocols import AsyncWaiting
from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Wakeable
from interlock.runtime import _aio as rt
from interlock.storekit._async.step_queue import AsyncStepQueue, AsyncStepStore
from interlock.stores.files.fast_path import Quick, native
from interlock.stores.files.steps import FileSteps
from interlock.stores.files.system import system


class AsyncFileQueue(AsyncStepQueue):
    """A queue on the lines of a folder.

    Args:
        lines: the lines.
        steps: the same lines, as the queue performs steps on them.
    """

    busy_text = (
        "The guard of the file was not free for 5 s: very many processes ask for this name at once, or a process "
        "that was stopped during a step holds it (lslocks shows which). Retry; continue or kill a stopped process."
    )

    def __init__(self, lines: FileSteps, steps: AsyncStepStore) -> None:
        super().__init__(steps)
        self._lines = lines
        self._new_waiter = _waiters_of(lines)
        self._quick = None if native is None else Quick(native, lines)

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        self._lines.verify = WeakMethod(verify)  # the lines outlive a queue that is dropped

    async def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        if self._quick is not None and (waiter is not None or not already_queued):
            # async only
            await rt.yield_to_loop()  # a quick step never waits, and would starve other tasks
            result = self._quick.enter(claim, waiter, may_queue, already_queued)
            if result is not None:
                return result
        return await super().enter(claim, waiter, may_queue, already_queued)

    async def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        if self._quick is not None and not keep_for and self._quick.leave(claim):
            self._forget(claim.id, None)
            return True
        return await super().leave(claim, keep_for, stored_result)

    def subscribe(self) -> AsyncWaiting:
        return self._new_waiter()


def _waiters_of(lines: FileSteps) -> Callable[[], AsyncWaiting]:
    """Return a function that makes a waiter, as this system has them."""
    wakeups = lines.wakeups
    if system.HAS_PIPES:
        from interlock.stores.files._async.pipe_waiter import AsyncPipeWaiter
        from interlock.stores.files.pipes import Pipes

        assert isinstance(wakeups, Pipes)
        return partial(AsyncPipeWaiter, wakeups)
    from interlock.stores.files._async.loopback_waiter import AsyncLoopbackWaiter
    from interlock.stores.files.loopback import Loopback

    assert isinstance(wakeups, Loopback)
    return partial(AsyncLoopbackWaiter, wakeups)
