"""The waiting claims of this process, what wakes each, and the successor of each.

**Local hand-off**: a released claim lets in its successor of the same process before the server is told.

The order of the line is settled when a claim enters it, and so is its fence.  If a claim enters right behind another
one of its process that takes the whole lock, the server says so in its reply: the new claim is the *successor*.  A
released claim lets in its successor at once, and its `leave` tells the server which one.  For the server the released
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
  renewed at once, and all waiters ask the server (`server_queue`);
- a successor that was let in and does not begin to work leaves as a holder does.
"""

import re
from collections.abc import Sequence
from threading import RLock
from typing import TYPE_CHECKING, Protocol, TypeAlias

from interlock.core.line import Origin, QueuedClaim
from interlock.core.queue import Granted, Wakeable
from interlock.runtime.process import WeakRegistry, each_in_forked_child

DIGITS = 19  # of the largest fence
MOST_UNANSWERED = 64  # releases without a reply, after which the server chooses the next claim
MESSAGE = re.compile(f"([^ ]*) ([0-9]{{1,{DIGITS}}})(?: ([0-9]{{1,{DIGITS}}}))?")


class Waiters:
    """What wakes each waiting claim, by the claim's id; threads and tasks of several loops may stand here together.

    Each step is one operation of a dictionary: so a signal handler or a finalizer may come in between.

    Attributes:
        by_id: what wakes each; always the same dictionary.
    """

    def __init__(self) -> None:
        self.by_id: dict[str, Wakeable] = {}
        _all.add(self)

    def __bool__(self) -> bool:
        return bool(self.by_id)

    def add(self, id: str, waiter: Wakeable) -> None:
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
            waiter.wake(Granted(id, fence, slot) if fence else None)
        return waiter is not None

    def dispatch(self, message: str) -> None:
        """Pass on the message of another process: "id fence slot"."""
        words = MESSAGE.fullmatch(message)
        if words is not None:  # else it is not from us
            self.notify(words[1], int(words[2]), int(words[3] or 0))

    def wake_all(self) -> None:
        """Let all waiters look: messages may have been missed meanwhile."""
        for waiter in list(self.by_id.values()):
            waiter.wake(None)


_all: WeakRegistry[Waiters] = WeakRegistry()
each_in_forked_child(_all, lambda waiters: waiters.by_id.clear())


class Notifier(Protocol):
    """What a store uses to notify the waiters of its lines.

    Attributes:
        waiters: the waiting claims of this process.
    """

    waiters: Waiters

    if TYPE_CHECKING:  # a subclass has an attribute or a property

        @property
        def origin(self) -> Origin:
            """This process as others see it."""

    def notify_others(self, promoted: Sequence[QueuedClaim]) -> None:
        """Notify waiters in other processes: a new holder of its fence, a pending claim that it must look."""


class HandOver:
    """A released or withdrawn claim, until the server has replied to its departure.

    Args:
        before: the claim that was released, or that gave up.
        id: the successor that it let in; "" if it gave up.

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
        """Record the server's reply; True if this request or a request of a successor removed the claim."""
        self.answered = True
        return removed or self.carried


Next: TypeAlias = tuple[str, int, tuple[HandOver, ...]]
"""The successor of a claim, its fence, and the claims between the two that gave up."""
NOBODY: Next = ("", 0, ())


class Successors(Waiters):
    """The waiting claims of one process or event loop, the claims that it holds now, and the successor of each.

    Each section under the mutex may be nested by a signal handler of its own thread: one operation of a
    dictionary decides which claim is let in.

    Attributes:
        trusts: False if a claim that is told that it holds the lock must ask the server before it goes in.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trusts = True
        self._after: dict[str, Next] = {}
        self._before: dict[str, str] = {}
        self._held: dict[str, tuple[HandOver, ...]] = {}  # with the hand-overs before it that may have no reply
        self._mutex = RLock()

    def holds(self, id: str, before: tuple[HandOver, ...] = ()) -> None:
        """Record that this process holds a claim: it is no longer a successor, and may have a successor.

        Args:
            id: the claim.
            before: the hand-overs before it, from the first hand-over without a reply.
        """
        self._held[id] = before
        if self._before:
            with self._mutex:
                self._unlink(id)

    def before(self, id: str) -> list[str]:
        """Return the claims that a holder's request must name, because their releases have no reply yet."""
        unanswered = [each for each in self._held.get(id, ()) if not each.answered]
        for each in unanswered:
            each.carried = True
        return [each.before for each in unanswered]

    def follow(self, before: str, id: str, fence: int, between: tuple[HandOver, ...] = ()) -> None:
        """Note that the waiting claim `id` holds the lock with `fence` as soon as `before` has left.

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
        """As `Waiters.notify`: the server says that a claim holds the lock."""
        fence = fence if self.trusts else 0
        if fence and id in self.by_id:
            self.holds(id)
            if id not in self.by_id:  # it gave up at this moment
                self._held.pop(id, None)
        return super().notify(id, fence, slot)

    def leaves(self, id: str) -> HandOver | None:
        """Record that a claim is released or gives up; if this process held the claim, let in its successor.

        Returns:
            The hand-over, whose `settle` takes the server's reply; None if no claim depends on that reply.
        """
        self.by_id.pop(id, None)
        held = self._held.pop(id, None)
        if not self._after:
            return None
        with self._mutex:
            before, earlier = self._unlink(id)
            next, fence, between = self._after.pop(id, NOBODY)
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
        """Record that this process has lost a claim or passed it on: the successor is not let in.

        Returns:
            The argument of `holds`, in case the process still holds the claim; None if it did not hold the claim.
        """
        return self._held.pop(id, None)

    def _unlink(self, id: str) -> tuple[str, tuple[HandOver, ...]]:
        """Detach a claim from its predecessor; return the predecessor, or "", and the claims that gave up between."""
        before = self._before.pop(id, "")
        if not before or self._after.get(before, NOBODY)[0] != id:
            return before, ()
        return before, self._after.pop(before)[2]
