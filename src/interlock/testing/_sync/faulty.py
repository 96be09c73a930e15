# Generated from _async/faulty.py by tools/unasync.py; change that one.
"""A queue around another queue, with a fault."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core._sync.protocols import Queue, Waiting
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Held, Renewed, Wakeable
from interlock.runtime import _threads as rt
from interlock.testing.fault import Fault


class FaultyQueue(Queue):
    """A queue that passes each step to another queue, through the methods of a fault.

    Args:
        queue: the real queue.
        fault: the fault.

    Attributes:
        verify: asks the store about a claim; of the watchdog.
    """

    def __init__(self, queue: Queue, fault: Fault) -> None:
        self._queue = queue
        self._fault = fault
        self.verify: Callable[[str], bool] = lambda id: False
        queue.watch_doubts(self._verify)

    def _pass(self, step: str, perform: Callable[..., rt.Result[Any]], *args: object) -> Any:
        """Perform one step through the methods of the fault."""
        fault = self._fault
        args = fault.before(step, args)
        seconds = fault.pause_before(step, args)
        if seconds is not None:
            rt.sleep(seconds)
        answer = fault.instead(step, args)
        if answer is None:
            answer = perform(*args)
        seconds = fault.pause_after(step, args)
        if seconds is not None:
            rt.sleep(seconds)
        return fault.after(step, args, answer)

    def enter(
        self, claim: Claim, waiter: Wakeable | None, may_queue: bool, already_queued: bool
    ) -> EnterResult:
        answer: EnterResult = self._pass("enter", self._queue.enter, claim, waiter, may_queue, already_queued)
        return answer

    def leave(self, claim: Claim, keep_for: float = 0.0, stored_result: str = "") -> bool:
        return bool(self._pass("leave", self._queue.leave, claim, keep_for, stored_result))

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        answers: list[Renewed] = self._pass("renew", self._queue.renew, claims)
        return answers

    def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        held: Held | None = self._pass("adopt", self._queue.adopt, key, id, claim, detached)
        return held

    def look(self, key: str) -> list[ClaimView]:
        views: list[ClaimView] = self._pass("look", self._queue.look, key)
        return views

    def evict(self, key: str, id: str | None) -> int:
        return int(self._pass("evict", self._queue.evict, key, id))

    def delete_run_result(self, key: str) -> bool:
        return bool(self._pass("delete_run_result", self._queue.delete_run_result, key))

    def run_result(self, key: str) -> str | None:
        return self._queue.run_result(key)

    def namespaces(self) -> list[str]:
        return self._queue.namespaces()

    def doctor(self) -> list[Check]:
        return self._queue.doctor()

    def subscribe(self) -> Waiting:
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

    def close(self) -> None:
        self._fault.closed = True
        self._queue.close()

    def abort(self) -> None:
        self._queue.abort()
