"""The waiters of this process, by claim: a message may come before its waiter is ready to hear it."""

import threading
from typing import Any

from interlock._redis.resp import MISSING, Parser
from interlock.core.queue import Granted
from interlock.stores.redis.handoff import Handoff

NextHolder = tuple[str, int]
"""The claim that comes next, and its fence."""


class WaiterRegistry:
    """The waiting claims of one store, and the successor of each."""

    def __init__(self) -> None:
        self.start_afresh()

    def start_afresh(self) -> None:
        """Forget all: a forked child waits for nothing."""
        # Re-entrant: the garbage collector may release a grant in the middle of any of these steps.
        self._mutex = threading.RLock()
        self.waiting: dict[str, Any] = {}
        self._granted: dict[str, Granted] = {}
        self._recheck_after: dict[str, float] = {}
        self._woken: set[str] = set()
        self._handoff = Handoff()

    def expect(self, id: str) -> None:
        """Keep what will be told to a claim that has no waiter yet."""
        self.waiting.setdefault(id, None)

    def wait_so_long(self, id: str, seconds: float) -> None:
        """Keep for a claim without a waiter how long it should wait at most."""
        if id in self.waiting and self.waiting[id] is None:
            self._recheck_after[id] = seconds

    def register(self, id: str, waiter: Any) -> tuple[float, Granted | None]:
        """Give a claim its waiter.

        Returns:
            How long to wait at most if it stands in line already, 0 if it should ask now; what was told meanwhile.
        """
        with self._mutex:
            self.waiting[id] = waiter
            granted = self._granted.pop(id, None)
            if granted is not None:
                self.waiting.pop(id, None)
            recheck_after = self._recheck_after.pop(id, 0.0)
            if id in self._woken:
                self._woken.discard(id)
                recheck_after = 0.0
            return recheck_after, granted

    def notify(self, id: str, fence: int) -> None:
        """Tell a claim that it holds the lock with `fence`; with 0, that it should look."""
        with self._mutex:
            if fence:
                self._promoted(id, fence)
            elif self.waiting.get(id) is not None:
                self.waiting[id].tell(None)

    def _promoted(self, id: str, fence: int) -> None:
        """Tell a claim that waits for it that it holds the lock."""
        self._handoff.holds(id)
        if id not in self.waiting or id in self._granted:
            return
        waiter = self.waiting[id]
        if waiter is None:
            self._granted[id] = Granted(id, fence)
        else:
            waiter.tell(Granted(id, fence))
            self.waiting.pop(id, None)  # it waits no longer

    def follow(self, before: str, id: str, fence: int) -> None:
        """Keep that a claim, if it still waits, holds the lock with `fence` as soon as the one before it has left."""
        with self._mutex:
            if id in self.waiting and id not in self._granted:
                self._handoff.follow(before, id, fence)

    def notify_all(self, parser: Parser) -> None:
        """Tell what was heard on the channel."""
        while (message := parser.next()) is not MISSING:
            if isinstance(message, list) and message[0] == b"message":
                id, _, fence = message[2].decode(errors="replace").partition(" ")
                if fence.isdecimal():  # else it is not from us
                    self.notify(id, int(fence))

    def holds(self, id: str) -> None:
        """The claim waits no longer: it holds the lock."""
        if id in self.waiting:
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
        self.waiting.pop(id, None)
        self._granted.pop(id, None)
        self._recheck_after.pop(id, None)
        self._woken.discard(id)

    def wake_all(self) -> None:
        """Let everybody look, those too who have no waiter yet."""
        for id, waiter in list(self.waiting.items()):
            if waiter is not None:
                waiter.tell(None)
            else:
                self._woken.add(id)

    @property
    def ids(self) -> list[str]:
        """The claims that wait."""
        return list(self.waiting)
