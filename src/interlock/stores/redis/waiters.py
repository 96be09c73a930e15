"""The waiters of this process, by claim: a message may come before its waiter is ready to hear it."""

from typing import Any

from interlock.core.queue import Granted
from interlock.runtime.waiters import WaiterRegistry
from interlock.stores.redis.handoff import Handoff

NextHolder = tuple[str, int]
"""The claim that comes next, and its fence."""


class RedisWaiters(WaiterRegistry):
    """The waiting claims of one store, and the successor of each; None stands for a wake-up that is still to come."""

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        super().start_afresh()
        self._granted: dict[str, Granted] = {}
        self._recheck_after: dict[str, float] = {}
        self._woken: set[str] = set()
        self._handoff = Handoff()

    def expect(self, id: str) -> None:
        """Keep what will be told to a claim that has no waiter yet."""
        self._waiters.setdefault(id, None)

    def wait_so_long(self, id: str, seconds: float) -> None:
        """Keep for a claim without a waiter how long it should wait at most."""
        if id in self._waiters and self._waiters[id] is None:
            self._recheck_after[id] = seconds

    def register(self, id: str, waiter: Any) -> tuple[float, Granted | None]:
        """Give a claim its waiter.

        Returns:
            How long to wait at most if it stands in line already, 0 if it should ask now; what was told meanwhile.
        """
        with self._mutex:
            self._waiters[id] = waiter
            granted = self._granted.pop(id, None)
            if granted is not None:
                self._waiters.pop(id, None)
            recheck_after = self._recheck_after.pop(id, 0.0)
            if id in self._woken:
                self._woken.discard(id)
                recheck_after = 0.0
            return recheck_after, granted

    def has_wakeup(self, id: str) -> bool:
        """Tell whether a claim waits and has its waiter."""
        return self._waiters.get(id) is not None

    def notify(self, id: str, fence: int) -> bool:
        """As `WaiterRegistry.notify`; a fence is kept for a claim whose waiter is still to come."""
        with self._mutex:
            known = id in self._waiters
            if fence:
                self._promoted(id, fence)
            elif self.has_wakeup(id):
                self._waiters[id].tell(None)
            return known

    def _promoted(self, id: str, fence: int) -> None:
        """Tell a claim that waits for it that it holds the lock."""
        self._handoff.holds(id)
        if id not in self._waiters or id in self._granted:
            return
        waiter = self._waiters[id]
        if waiter is None:
            self._granted[id] = Granted(id, fence)
        else:
            waiter.tell(Granted(id, fence))
            self._waiters.pop(id, None)  # it waits no longer

    def follow(self, before: str, id: str, fence: int) -> None:
        """Keep that a claim, if it still waits, holds the lock with `fence` as soon as the one before it has left."""
        with self._mutex:
            if id in self._waiters and id not in self._granted:
                self._handoff.follow(before, id, fence)

    def holds(self, id: str) -> None:
        """The claim waits no longer: it holds the lock."""
        if id in self._waiters:
            with self._mutex:
                self._handoff.holds(id)
                self._drop(id)

    def withdraw(self, id: str) -> None:
        """Take out a claim that waits, or that was told and did not come to work.

        Its successor follows the claim before it.
        """
        with self._mutex:
            self._handoff.withdraws(id)
            self._drop(id)

    def pass_on(self, id: str) -> NextHolder | None:
        """The claim leaves that held the lock: its successor does now, and is told so.

        Only the release of a grant may call this: a waiter that leaves has nothing to pass on.

        Returns:
            The successor, if there is one.
        """
        with self._mutex:
            self._drop(id)
            successor = self._handoff.leaves(id)
            if successor is not None:
                self._promoted(*successor)
        return successor

    def is_void(self, removed: bool) -> bool:
        """Tell, from the answer to a leave, whether the promise to a successor may be void.

        Args:
            removed: whether the server still had the claim that let the successor in.
        """
        return not removed

    def _drop(self, id: str) -> None:
        self._waiters.pop(id, None)
        self._granted.pop(id, None)
        self._recheck_after.pop(id, None)
        self._woken.discard(id)

    def wake_all(self) -> None:
        """Let everybody look, those too who have no waiter yet."""
        for id, waiter in list(self._waiters.items()):
            if waiter is not None:
                waiter.tell(None)
            else:
                self._woken.add(id)
