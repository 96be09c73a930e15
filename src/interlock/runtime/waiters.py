"""The waiting claims of this process, their waiters, and their successors.

**Local hand-off**: a released claim grants the lock to its successor in this process before the server knows.

The order of the line, and the fence, are fixed when a claim enters.  If a claim enters directly behind a claim of
its process that takes the whole lock, the server's reply says so: the new claim is the *successor*.  A released
claim grants the lock to its successor immediately, and its `leave` names the successor.  For the server the released
claim holds the lock until its `leave` arrives, or until its lease ends; whichever comes first, the successor is next,
and no claim can enter between the two.

A hand-over is a hint about the order, not a proof that the successor holds the lock: requests on two connections may
overtake each other.  Until the release of its predecessor is answered, a successor's requests that need the lock on
the server (complete, adopt, renew) name that predecessor, and the server removes it in the same step.

What keeps that safe:
- only a claim that this process holds now lets its successor in, and only once;
- a successor that gives up is passed over: its own successor follows the claim before it;
- a successor whose own clock says that its lease is over does not go in (`core.acquire`);
- when the server answers that it no longer had the released claim, its promise is void: the successor's lease is
  renewed immediately, and all waiters ask the server (`server_queue`);
- a successor that was let in and does not begin to work leaves as a holder does.
"""

import re
from abc import abstractmethod
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Protocol, TypeAlias

from interlock.core.line import Origin, QueuedClaim, unchecked
from interlock.core.queue import Granted, Wakeable
from interlock.runtime.process import WeakRegistry, each_in_forked_child

DIGITS = 19  # of the largest fence
MOST_UNANSWERED = 64  # releases without a reply, after which the server chooses the next claim
MESSAGE = re.compile(f"([^ ]*) ([0-9]{{1,{DIGITS}}})(?: ([0-9]{{1,{DIGITS}}}))?")


class Waiters:
    """The waiters by claim id; threads and tasks of several loops may share it.

    Each step is one operation of a dictionary, so a signal handler or finalizer may interrupt it.

    Attributes:
        by_id: the waiters by claim id; always the same dictionary.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Wakeable] = {}
        _all.add(self)

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def add(self, id: str, waiter: Wakeable) -> None:
        """Register the waiter of a claim."""
        self.by_id[id] = waiter

    def remove(self, id: str) -> bool:
        """Forget a claim; return True if it was registered."""
        return self.by_id.pop(id, None) is not None

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """Notify a claim that it holds the lock with `fence`; with 0, that it should poll.

        Returns:
            False if the claim does not wait here.
        """
        waiter = self.by_id.get(id)
        if waiter is not None:
            waiter.wake(unchecked(Granted, (id, fence, slot)) if fence else None)
        return waiter is not None

    def dispatch(self, message: str) -> None:
        """Pass on a message of another process: "id fence slot"."""
        words = MESSAGE.fullmatch(message)
        if words is not None:  # otherwise the message is foreign
            self.notify(words[1], int(words[2]), int(words[3] or 0))

    def wake_all(self) -> None:
        """Let all waiters poll, because messages may have been missed."""
        for waiter in list(self.by_id.values()):
            waiter.wake(None)


_all: WeakRegistry[Waiters] = WeakRegistry()
each_in_forked_child(_all, lambda waiters: waiters.by_id.clear())


class Notifier(Protocol):
    """Notifies the waiters of a store's lines.

    Attributes:
        waiters: the waiting claims of this process.
    """

    waiters: Waiters

    if TYPE_CHECKING:  # a subclass has an attribute or a property

        @property
        def origin(self) -> Origin:
            """This process in listings."""

    @abstractmethod
    def notify_others(self, promoted: Sequence[QueuedClaim]) -> None:
        """Notify waiters in other processes: holders of their fence, pending claims to poll."""


class HandOver:
    """A released or withdrawn claim, until the server has replied to its departure.

    Args:
        before: the claim that was released or gave up.
        id: the successor that was granted the lock; "" if the claim gave up.

    Attributes:
        before, id: the arguments.
        answered: True once the server has replied to the release.
        carried: True once a request of a successor has named the released claim.
    """

    __slots__ = ("answered", "before", "carried", "id")

    def __init__(self, before: str, id: str) -> None:
        self.before, self.id = before, id
        self.answered = self.carried = False

    def settle(self, removed: bool) -> bool:
        """Record the server's reply; return True if any request removed the claim."""
        self.answered = True
        return removed or self.carried


Next: TypeAlias = tuple[str, int, tuple[HandOver, ...]]
"""The successor of a claim, its fence, and the claims between the two that gave up."""
NO_SUCCESSOR: Next = ("", 0, ())


class Successors(Waiters):
    """The waiting and held claims of one process or loop, and their successors.

    Each section under the mutex may be nested by a signal handler of its own thread: one operation of a
    dictionary decides which claim is let in.

    Attributes:
        trusts: False if a claim that is notified must verify its grant at the server first.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trusts = True
        self._after: dict[str, Next] = {}
        self._before: dict[str, str] = {}
        self._held: dict[str, tuple[HandOver, ...]] = {}  # with the earlier hand-overs that may have no reply
        self._mutex = RLock()

    def holds(self, id: str, before: tuple[HandOver, ...] = ()) -> None:
        """Record that this process holds a claim, which may now have a successor.

        Args:
            id: the claim.
            before: the hand-overs before it, from the first hand-over without a reply.
        """
        self._held[id] = before
        if self._before:
            with self._mutex:
                self._unlink(id)

    def before(self, id: str) -> list[str]:
        """Return the claims that a holder's request must name: their releases had no reply."""
        unanswered = [each for each in self._held.get(id, ()) if not each.answered]
        for each in unanswered:
            each.carried = True
        return [each.before for each in unanswered]

    def follow(self, before: str, id: str, fence: int, between: tuple[HandOver, ...] = ()) -> None:
        """Record that the claim `id` gets the lock with `fence` when `before` has left.

        Args:
            before, id, fence: as above.
            between: the claims between the two that gave up.
        """
        with self._mutex:
            waits = self.trusts and id in self.by_id and id not in self._held
            if waits and (before in self._held or before in self.by_id):
                self._unlink(id)
                former = self._after.get(before)
                if former is not None:
                    self._before.pop(former[0], None)
                self._before[id] = before
                self._after[before] = (id, fence, between)

    def notify(self, id: str, fence: int, slot: int = 0) -> bool:
        """Notify a claim like `Waiters.notify`: the server has granted the lock."""
        fence = fence if self.trusts else 0
        if fence and id in self.by_id:
            self.holds(id)
            if id not in self.by_id:  # it gave up at this moment
                self._held.pop(id, None)
        return super().notify(id, fence, slot)

    def leaves(self, id: str) -> HandOver | None:
        """Record the end of a claim; if this process held it, grant to its successor.

        Returns:
            The hand-over, whose `settle` takes the server's reply; None if no claim depends on that reply.
        """
        self.by_id.pop(id, None)
        held = self._held.pop(id, None)
        if not self._after:
            return None
        with self._mutex:
            before, earlier = self._unlink(id)
            next, fence, between = self._after.pop(id, NO_SUCCESSOR)
            if not next:
                return None
            self._before.pop(next, None)
            left = (*(held or earlier), *between)
            chain = tuple([each for each in left if not each.answered]) if left else ()
            if len(chain) >= MOST_UNANSWERED or (held is None and not before):
                return None
            made = HandOver(id, "" if held is None else next)
            if held is None:
                self.follow(before, next, fence, (*chain, made))
                return made
            self._held[next] = (*chain, made)
            if not super().notify(next, fence):  # it gave up at this moment
                self._held.pop(next, None)
            return made

    def drop_held(self, id: str) -> tuple[HandOver, ...] | None:
        """Record that this process no longer holds a claim; its successor must wait.

        Returns:
            The argument of `holds`, in case the process still holds the claim; None if it did not hold the claim.
        """
        return self._held.pop(id, None)

    def _unlink(self, id: str) -> tuple[str, tuple[HandOver, ...]]:
        """Detach a claim from its predecessor; return it ("" if none) and the claims between."""
        before = self._before.pop(id, "")
        if not before or self._after.get(before, NO_SUCCESSOR)[0] != id:
            return before, ()
        return before, self._after.pop(before)[2]
