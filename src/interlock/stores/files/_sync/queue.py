# Generated from _async/queue.py by tools/unasync.py; change that one.
"""The queue of a folder; compiled code performs the common steps, if it is installed."""

from collections.abc import Callable
from functools import partial
from weakref import WeakMethod

from interlock.core._sync.protocols import Waiting
from interlock.core.claims import Claim
from interlock.core.queue import EnterResult, Wakeable
from interlock.runtime import _threads as rt
from interlock.storekit._sync.step_queue import StepQueue, StepStore
from interlock.stores.files.fast_path import Quick, native
from interlock.stores.files.steps import FileSteps
from interlock.stores.files.system import system


class FileQueue(StepQueue):
    """A queue on the lines of a folder.

    Args:
        lines: the lines.
        steps: the same lines, as the queue performs steps on them.
    """

    busy_text = (
        "The guard of the file was not free for 5 s: very many processes ask for this name at once, or a process "
        "that was stopped during a step holds it (lslocks shows which). Retry; continue or kill a stopped process."
    )

    def __init__(self, lines: FileSteps, steps: StepStore) -> None:
        super().__init__(steps)
        self._lines = lines
        self._new_waiter = _waiters_of(lines)
        self._quick = None if native is None else Quick(native, lines)

    def watch_doubts(self, verify: Callable[[str], bool]) -> None:
        self._lines.verify = WeakMethod(verify)  # the lines outlive a queue that is dropped

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        if self._quick is not None and (waiter is not None or not already_queued):
            result = self._quick.enter(claim, waiter, may_queue, already_queued)
            if result is not None:
                return result
        return super().enter(claim, waiter, may_queue, already_queued)

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        if self._quick is not None and not keep_for and self._quick.leave(claim):
            self._forget(claim.id, None)
            return True
        return super().leave(claim, keep_for, stored_result)

    def subscribe(self) -> Waiting:
        return self._new_waiter()


def _waiters_of(lines: FileSteps) -> Callable[[], Waiting]:
    """Return a function that makes a waiter, as this system has them."""
    wakeups = lines.wakeups
    if system.HAS_PIPES:
        from interlock.stores.files._sync.pipe_waiter import PipeWaiter
        from interlock.stores.files.pipes import Pipes

        assert isinstance(wakeups, Pipes)
        return partial(PipeWaiter, wakeups)
    from interlock.stores.files._sync.loopback_waiter import LoopbackWaiter
    from interlock.stores.files.loopback import Loopback

    assert isinstance(wakeups, Loopback)
    return partial(LoopbackWaiter, wakeups)
