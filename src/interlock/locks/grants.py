"""Grants: what a holder has in its hand; the part that both colours share."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar, overload

from interlock.core.acquire import Held
from interlock.core.claims import SEPARATOR, Claim
from interlock.core.errors import InvalidArgument, LockLost, NotHeld, StoreError
from interlock.core.queue import Renewed
from interlock.locks.blocks import Block
from interlock.locks.events import Kind
from interlock.locks.unreleased import kept
from interlock.runtime import log
from interlock.runtime.process import pid

G = TypeVar("G", bound="BaseGrant")
HELD, RELEASED, LOST = "held", "released", "lost"
GONE_THERE = "the store no longer has its claim: it expired there or was evicted"
LEASE_ENDED = "its lease ended before it was renewed"


class BaseGrant:
    """A held claim and its lease; the fence and the id never change.

    Attributes:
        id: the claim's id.
        fence: the fencing token, strictly increasing per name; give it to the resource that you protect.
    """

    __slots__ = (
        "__weakref__", "_acquired_at", "_block", "_claim", "_deadline", "_due", "_free_at", "_leaving",
        "_lost_because", "_on_lost", "_owner", "_pid", "_renews", "_session", "_state", "fence", "id",
    )  # fmt: skip
    _owner: Any
    _session: Any
    _acquired_at: float | None
    _block: Block | None

    def __init__(
        self, held: Held | tuple[Claim, int, float], renews: bool, on_lost: Callable[[Any], object] | None
    ) -> None:
        claim, self.fence, deadline = held  # a tuple on the fast path: it is made in half the time
        self._claim: Claim = claim
        self.id: str = claim[0]
        self._deadline: float = deadline
        self._free_at = 0.0
        self._renews = renews
        self._on_lost = on_lost
        self._state = HELD
        self._leaving = False
        self._lost_because = ""
        self._block = None
        self._acquired_at = None
        self._pid = pid()
        self._due = deadline - claim[1].ttl * (2 / 3) if renews else deadline

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._claim.spec.key.partition(SEPARATOR)[2]

    @property
    def expires_in(self) -> float:
        """Seconds until the lease ends unless it is renewed; 0 when it is over."""
        if self._state != HELD or self._pid != pid():
            return 0.0
        return max(0.0, self._deadline - time.monotonic())

    @property
    def held(self) -> bool:
        """True while it is neither released nor lost; False from the moment when its release begins."""
        return not self.lost and self._state == HELD and not self._leaving

    @property
    def lost(self) -> bool:
        """True once the lease ended or the claim was evicted before it was released."""
        if self._pid != pid():
            return True
        if self._state == HELD and time.monotonic() >= self._deadline:
            self._lose(LEASE_ENDED)
        return self._state == LOST

    @property
    def inherited(self) -> bool:
        """True in a forked child, which owns nothing of its parent's grants."""
        return self._pid != pid()

    @property
    def _over(self) -> bool:
        """True once nobody will ask what became of it: it was released, or lost and asked to be released."""
        return self._state == RELEASED or (self._state == LOST and self._leaving)

    def check(self) -> None:
        """Raise unless the lock is held now; call it before what must not be done twice.

        Raises:
            LockLost: the lease ended, or the claim was evicted, or this is a forked child.
            NotHeld: the grant was released.
        """
        if self.lost:
            raise self._loss()
        if not self.held:
            raise NotHeld(f"the lock {self.name!r} was released, or its release has begun; acquire it again")

    def abandoned(self) -> bool:
        """Tell whether it was taken by a `with` statement whose block was left without a release.

        That takes an interrupt at the moment when `__exit__` is entered; such a grant is to be released by others.
        """
        block = self._block
        return block is not None and self.held and block() is None

    def _check_before_block(self) -> None:
        """Raise unless `with grant:` may be entered.

        Raises:
            LockLost, NotHeld: as `check`.
            NotHeld: another `with` will release it.
        """
        self.check()
        if self._block is not None:
            raise NotHeld(f"the lock {self.name!r} is released by the `with` that it is in already; use that one")

    def _keep_for_block(self) -> None:
        """Keep it until it is released: a `with` block will do that, or the next call that finds the block left."""
        kept[self.id] = self

    def _stay_at_least(self, seconds: float) -> None:
        """Let a release before the end of so many seconds from now keep the claim until then."""
        self._free_at = time.monotonic() + seconds

    def _loss(self) -> LockLost:
        why = "a forked child owns nothing of its parent's grants" if self.inherited else self._lost_because
        return LockLost(
            f"the lock {self.name!r} (fence {self.fence}) was lost: {why}; stop the work, or give the resource the "
            f"fence so that it can refuse it"
        )

    def _loss_to_raise(self) -> LockLost | None:
        """Return what the end of a `with` block raises: nothing in a forked child, whose parent has the lock."""
        return self._loss() if self.lost and not self.inherited else None

    def _lose(self, why: str) -> None:
        """Mark it lost, unless it is over already."""
        if self._state == HELD:
            kept.pop(self.id, None)
            self._lost_because = why
            # A release whose reply did not come may have been done: a claim that is gone then is no loss.
            self._state = RELEASED if self._leaving else LOST

    def _tell_acquired(self, started: float) -> None:
        """Tell the listeners that it is held now."""
        self._acquired_at = time.monotonic()
        self._session.tell("acquired", self._claim, fence=self.fence, started=started)

    def _tell(self, kind: Kind, reason: str = "") -> None:
        """Tell the listeners what happened to it."""
        since = self._acquired_at
        held = None if since is None else time.monotonic() - since
        self._session.tell(kind, self._claim, fence=self.fence, held=held, reason=reason)

    def _tell_end(self) -> None:
        """Tell that its release found it lost, or gone at the end of a lease that an earlier release had left.

        Another release that took it out at the same time has told that.
        """
        if self._state == LOST:
            self._warn_of_loss()
            self._tell("lost", self._lost_because)
        elif self._lost_because:
            self._tell("released", self._lost_because)

    def _warn_of_loss(self) -> None:
        log.warn("the lock %r (fence %d) was lost: %s", self.name, self.fence, self._lost_because)

    def _give_up_renewing(self) -> None:
        """Note that leaving failed: the lock is free at the end of the lease at the latest, whatever comes."""
        self._renews = False
        self._due = self._deadline

    def _left(self, removed: bool, again: bool) -> bool:
        """Note the store's answer to leave; return what `release` answers.

        Args:
            removed: the answer.
            again: whether it was asked before without an answer, and may have done it then.
        """
        if self._state != HELD:
            return False
        if removed or again:
            self._state = RELEASED
            return True
        self._leaving = False
        self._lose("the store no longer had its claim when it was released")
        return False

    def _stays_with(self, watchdog: Any) -> bool:
        """Leave the claim to `watchdog` until its `at_least` is over; False if another release was quicker."""
        if self._state != HELD:
            return False
        watchdog.release_later(self)
        kept.pop(self.id, None)
        self._state = RELEASED
        self._tell("released")
        return True

    def _answered(self, answer: Renewed, sent: float, watchdog: Any) -> bool:
        """Note the store's answer to a renewal that was sent at `sent`; return what `renew` answers."""
        if isinstance(answer, StoreError):
            raise answer
        if answer:
            self._renewed(sent)
            self._tell("renewed")
            return True
        watchdog.lost(self)
        return False

    def _renewed(self, sent: float) -> None:
        """Note a renewal that was sent at `sent` and answered."""
        ttl = self._claim.spec.ttl
        self._deadline = max(self._deadline, sent + ttl)
        self._due = self._deadline - ttl * (2 / 3) if self._renews else self._deadline

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"the grant of {self.name!r} belongs to the process that acquired it: send the lock, or the fence"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._state} fence={self.fence} id={self.id}>"


class BaseGrants(Sequence[G]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

    def __init__(self, grants: Sequence[G]) -> None:
        self._grants = tuple(grants)
        self._within: Block | None = None

    @property
    def _block(self) -> Block | None:
        return self._within

    @_block.setter
    def _block(self, block: Block | None) -> None:
        self._within = block
        for grant in self._grants:
            grant._block = block

    @overload
    def __getitem__(self, index: int) -> G: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[G]: ...
    def __getitem__(self, index: int | slice) -> G | Sequence[G]:
        return self._grants[index]

    def __len__(self) -> int:
        return len(self._grants)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name."""
        return {grant.name: grant.fence for grant in self._grants}

    @property
    def _over(self) -> bool:
        return all(grant._over for grant in self._grants)

    @property
    def held(self) -> bool:
        """True while all of them are held."""
        return all(grant.held for grant in self._grants)

    @property
    def lost(self) -> bool:
        """True once any of them is lost."""
        return any(grant.lost for grant in self._grants)

    @property
    def inherited(self) -> bool:
        """True in a forked child, which owns nothing of its parent's grants."""
        return any(grant.inherited for grant in self._grants)

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all of them are held now."""
        for grant in self._grants:
            grant.check()

    def _loss(self) -> LockLost:
        return next(grant for grant in self._grants if grant.lost)._loss()

    def abandoned(self) -> bool:
        """As `BaseGrant.abandoned`."""
        return any(grant.abandoned() for grant in self._grants)

    def _check_before_block(self) -> None:
        for grant in self._grants:
            grant._check_before_block()

    def _keep_for_block(self) -> None:
        for grant in self._grants:
            grant._keep_for_block()

    def _loss_to_raise(self) -> LockLost | None:
        return self._loss() if self.lost and not self.inherited else None
