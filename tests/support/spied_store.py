"""A store in memory that notes what it is asked, and fails where a test says so; and a clock that a test sets."""

import threading
from collections.abc import Callable
from typing import Any

from interlock.core.acquire import AcquireCall
from interlock.core.claims import Claim, LockSpec
from interlock.core.effects import Call, Op
from interlock.core.errors import StoreError
from interlock.stores.memory import MemoryStore, Space


class SpiedStore(MemoryStore):
    """As `MemoryStore`, whose claims outlive the process, without a plain call to leave.

    Attributes:
        left: the ids that were asked to leave, in this order.
        failing: what leaving raises, by id.
        meanwhile: called with each claim that leaves, before it does.
        closed_by: the threads that closed it.
    """

    frees_at_death = False

    def __init__(self) -> None:
        super().__init__(Space())
        self.left: list[str] = []
        self.failing: dict[str, BaseException] = {}
        self.meanwhile: Callable[[Claim], object] | None = None
        self.closed_by: list[threading.Thread] = []
        self.leave_now: Any = None
        self.doubt: Any = None

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        self.left.append(claim.id)
        removed: bool = yield Call(self._leave, (claim,))
        return removed

    def _leave(self, claim: Claim) -> bool:
        if self.meanwhile is not None:
            self.meanwhile(claim)
        if claim.id in self.failing:
            raise self.failing[claim.id]
        return super().leave_now(claim)

    def close(self) -> None:
        """As `Store.close`."""
        self.closed_by.append(threading.current_thread())


class Clock:
    """Takes the place of the module `time`: it stands still but for those who sleep.

    Attributes:
        now: seconds.
        pauses: how long each slept.
        meanwhile: called after each pause.
    """

    def __init__(self, now: float = 100.0) -> None:
        self.now = now
        self.pauses: list[float] = []
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        """As `time.monotonic`."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """As `time.sleep`, at once."""
        assert len(self.pauses) < 100_000, "it sleeps for ever"
        self.now += seconds
        self.pauses.append(seconds)
        self.meanwhile()


def claim(id: str) -> Claim:
    """Return a claim on a lock."""
    return Claim(id, LockSpec("\0a", ttl=30.0))


def away() -> StoreError:
    """Return what a store raises that can't be asked."""
    return StoreError("the store is away")


def enters(session: Any, name: str, owner: Any) -> AcquireCall:
    """Note a call of acquire that waits.

    Args:
        session: the connection's.
        name: of the lock, and the id of the claim.
        owner: the thread that waits, or the loop of the task.
    """
    call = AcquireCall(Claim(name, LockSpec(f"\0{name}"), name), 0.0, None, True, None, owner)
    session.entering[name] = call
    return call
