"""The waiting claims of this process, what wakes each, and the successor of each.

**Local hand-off**: a released claim lets in its successor of the same process before the server is told.

The order of the line is settled when a claim enters it, and so is its fence.  If a claim enters right behind another
one of its process that takes the whole lock, the server says so in its reply: the new claim is the *successor*.  A
released claim lets in its successor at once, and its `leave` tells the server which one.  For the server the released
claim holds the lock until its `leave` arrives, or until its lease ends; whichever comes first, the successor is next,
and no claim can enter between the two.

What keeps that safe:
- only a claim that holds the lock lets its successor in, and only once;
- a successor that gives up is passed over: its own successor follows the claim before it;
- a successor whose own clock says that its lease is over does not go in (`core.acquire`);
- when the server answers that it no longer had the released claim, its promise is void: the successor's lease is
  renewed at once, and all waiters ask the server (`server_queue`);
- a successor that was let in and does not begin to work leaves as a holder does.
"""

import re
from threading import RLock

from interlock.core.queue import Granted, Tells
from interlock.runtime.process import WeakRegistry, each_in_forked_child

DIGITS = 19  # of the largest fence
MESSAGE = re.compile(f"([^ ]*) ([0-9]{{1,{DIGITS}}})(?: ([0-9]{{1,{DIGITS}}}))?")


class Waiters:
    """What wakes each waiting claim, by the claim's id; threads and tasks of several loops may stand here together.

    Each step is one operation of a dictionary: so a signal handler or a finalizer may come in between.

    Attributes:
        by_id: what wakes each; always the same dictionary.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Tells] = {}
        _all.add(self)

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def add(self, id: str, waiter: Tells) -> None:
        """Let `waiter` get the notifications of a claim."""
        self.by_id[id] = waiter

    def remove(self, id: str) -> bool:
        """Forget a claim; True if it was there."""
        return self.by_id.pop(id, None) is not None

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """Notify a claim that it holds the lock with `fence`; with 0, that it should look.

        Returns:
            False if it does not wait here.
        """
        waiter = self.by_id.get(id)
        if waiter is not None:
            waiter.tell(Granted(id, fence, slot) if fence else None)
        return waiter is not None

    def hear(self, message: str) -> None:
        """Pass on the message of another process: "id fence slot"."""
        words = MESSAGE.fullmatch(message)
        if words is not None:  # else it is not from us
            self.notify(words[1], int(words[2]), int(words[3] or 0))

    def wake_all(self) -> None:
        """Let all waiters look: messages may have been missed meanwhile."""
        for waiter in list(self.by_id.values()):
            waiter.tell(None)


_all: WeakRegistry[Waiters] = WeakRegistry()
each_in_forked_child(_all, lambda waiters: waiters.by_id.clear())


class Successors(Waiters):
    """The waiting claims of one process or event loop, which of them hold the lock by now, and the successor of each.

    Each section under the mutex may be nested by a signal handler of its own thread: one operation of a
    dictionary decides which claim is let in.

    Attributes:
        trusts: False if a claim that is told that it holds the lock must ask the server before it goes in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trusts = True
        self._after: dict[str, tuple[str, int]] = {}
        self._before: dict[str, str] = {}
        self._held: set[str] = set()
        self._mutex = RLock()

    def holds(self, id: str) -> None:
        """Note that a claim holds the lock: it is no successor any more, and may have one."""
        self._held.add(id)
        if self._before:
            with self._mutex:
                self._unlink(id)

    def follow(self, before: str, id: str, fence: int) -> None:
        """Note that the waiting claim `id` holds the lock with `fence` as soon as `before` has left."""
        with self._mutex:
            waits = self.trusts and id in self.by_id and id not in self._held
            if waits and (before in self._held or before in self.by_id):
                self._unlink(id)
                former = self._after.get(before)
                if former is not None:
                    self._before.pop(former[0], None)
                self._before[id] = before
                self._after[before] = (id, fence)

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """As `Waiters.notify`: the server says that a claim holds the lock."""
        fence = fence if self.trusts else 0
        if fence and id in self.by_id:
            self.holds(id)
        return super().notify(id, fence, slot)

    def leaves(self, id: str, hands_over: bool = True) -> str:
        """Note that a claim is released, or gives up; let in its successor if it held the lock.

        Args:
            id: the claim.
            hands_over: False if the server must choose the next claim.

        Returns:
            The successor that was let in; "" if none was.
        """
        self.by_id.pop(id, None)
        held = id in self._held
        self._held.discard(id)
        if not self._after:
            return ""
        with self._mutex:
            before = self._unlink(id)
            next, fence = self._after.pop(id, ("", 0))
            if not next:
                return ""
            self._before.pop(next, None)
            if held and hands_over:
                self.notify(next, fence)
                return next
            if before and not held:
                self.follow(before, next, fence)
            return ""

    def forget(self, id: str) -> None:
        """Note that the server no longer has a claim that held the lock: it lets no successor in."""
        self._held.discard(id)

    def _unlink(self, id: str) -> str:
        """Take a claim from behind the one before it; return that one, or ""."""
        before = self._before.pop(id, "")
        if before and self._after.get(before, ("", 0))[0] == id:
            del self._after[before]
        return before
