# Generated from _async/faulty.py by tools/unasync.py; change that one.
"""A queue around another queue, with a fault."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock.core._sync.acquire import Queue
from interlock.core.claims import Check, Claim, ClaimView
from interlock.core.queue import EnterResult, Held, Renewed
from interlock.runtime import _threads as rt


class FaultyQueue:
    """A queue that passes each step to another queue, through the methods of a fault.

    Args:
        queue: the real queue.
        fault: an `Around` of `testing.faults`.
    """

    def __init__(self, queue: Any, fault: Any) -> None:
        self._queue: Queue = queue
        self._fault = fault
        self.node_of, self.rest, self.set_doubt = queue.node_of, queue.rest, queue.set_doubt
        self.subscribe, self.abort, self.namespaces = queue.subscribe, queue.abort, queue.namespaces

    def _through(self, step: str, function: Callable[..., rt.Result[Any]], *args: Any) -> Any:
        fault = self._fault
        args = fault.before(step, args)
        seconds = fault.pause_before(step, args)
        if seconds is not None:
            rt.sleep(seconds)
        answer = fault.instead(step, args)
        if answer is None:
            answer = function(*args)
        seconds = fault.pause_after(step, args)
        if seconds is not None:
            rt.sleep(seconds)
        return fault.after(step, args, answer)

    def enter(self, claim: Claim, waiter: Any, wait: bool, again: bool) -> EnterResult:
        result: EnterResult = self._through("enter", self._queue.enter, claim, waiter, wait, again)
        return result

    def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        return bool(self._through("leave", self._queue.leave, claim, done, value))

    def kept(self, key: str) -> str | None:
        return self._queue.kept(key)

    def forget(self, key: str) -> bool:
        return self._queue.forget(key)

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        return list(self._through("renew", self._queue.renew, claims))

    def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        held: Held | None = self._through("adopt", self._queue.adopt, key, id, claim, detached)
        return held

    def look(self, key: str) -> list[ClaimView]:
        return list(self._through("look", self._queue.look, key))

    def evict(self, key: str, id: str | None) -> int:
        return int(self._through("evict", self._queue.evict, key, id))

    def doctor(self) -> list[Check]:
        queue: Any = self._queue
        return list(queue.doctor())

    def close(self) -> None:
        self._fault.closed = True
        queue: Any = self._queue
        queue.close()
