"""The common part of the grants of threads and of tasks."""

import threading
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar

from interlock.client.lease import Lease
from interlock.core.claims import LockSpec, fits, name_of
from interlock.core.errors import InvalidArgument, LockLost, NotHeld, Unsupported
from interlock.core.line import has_slots
from interlock.runtime import log

G = TypeVar("G", bound="BaseGrant", covariant=True)


class BaseGrant(Lease):
    """A held claim and its lease; the fence and the id never change.

    Attributes:
        id: the claim's id.
        fence: the fencing token, strictly increasing per name; pass it to the resource that you protect.
    """

    __slots__ = ()

    @property
    def slot(self) -> int:
        """The holder's lowest free number, from 0; 0 for an exclusive lock.

        Raises:
            Unsupported: the store has no slots, or the lock has none: more than 1 unit, more than 1,024 permits, a
                reader.
        """
        spec = self._claim.spec
        if spec.capacity == 1:
            return 0
        self._client.need("slot")
        if not has_slots(spec.units, spec.capacity):
            raise Unsupported("Only holders of one unit of a semaphore of at most 1,024 permits have slots.")
        return self._slot

    @property
    def item(self) -> str:
        """The item of this grant, from a lock of `one_of`.

        Raises:
            Unsupported: it is another kind of lock.
        """
        if not self._options.items:
            raise Unsupported("Only a grant of locks.one_of(name, items) has an item.")
        return self._options.items[self._slot]

    @property
    def wanted(self) -> bool:
        """True if another claim was waiting for the lock at the last renewal.

        Raises:
            Unsupported: the store does not support `wanted`.
        """
        self._client.need("wanted")
        return self._wanted

    @property
    def expires_in(self) -> float:
        """Seconds until the lease expires unless it is renewed; 0 after that."""
        if self.lost or self._over:
            return 0.0
        return max(0.0, float(self._deadline - self._client.now()))

    def check(self) -> None:
        """Raise unless the lock is held now; call it before work that must run only once.

        Raises:
            LockLost: the lease expired, or the claim was evicted, or this is a forked child.
            NotHeld: the grant was released.
        """
        if self.lost:
            raise self._loss()
        if not self.held:
            raise NotHeld(f"Lock {self.name!r} has already been released (or is being released). Acquire it again.")

    def __reduce__(self) -> NoReturn:
        raise InvalidArgument(
            f"The grant of {self.name!r} belongs to the process that acquired it. Send the lock, or the fence."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} {self._state} fence={self.fence} id={self.id}>"


def refuse_own_wait(spec: LockSpec, owner: object, seconds: float | None, grants: Sequence[BaseGrant]) -> None:
    """Refuse a wait of an event loop for its own thread, which could never release.

    Args:
        spec: the parameters of the lock.
        owner: the calling thread, in which a loop runs.
        seconds: the maximum wait; None for no limit.
        grants: the grants of this process.

    Raises:
        InvalidArgument: the wait would never end.
    """
    own = [each._claim.spec for each in grants if each._owner is owner and each.held]
    if fits(spec.units, spec.capacity, [(each.units, each.capacity) for each in own if each.key == spec.key]):
        return
    text = (
        f"The thread of this event loop holds {name_of(spec.key)!r} and waits for it, so no task can release it. "
        f"Around an `await`, use a lock of aconnect() with `async with`."
    )
    if seconds is None:
        raise InvalidArgument(text)
    log.warn("%s", text)


class ReentryCount:
    """The number of handles on one hold of a re-entrant lock."""

    __slots__ = ("_mutex", "_number")

    def __init__(self) -> None:
        self._number = 1
        self._mutex = threading.RLock()

    def add(self) -> bool:
        """Count one more handle; return False if the last one is being released."""
        with self._mutex:
            self._number += self._number > 0
            return self._number > 0

    def drop(self) -> bool:
        """Count one handle less; return True, even if repeated, when none remain."""
        with self._mutex:
            self._number -= self._number > 0
            return self._number == 0


class BaseGrants(tuple[G, ...]):
    """Several grants that were acquired together, in the order of acquisition."""

    @property
    def _body(self) -> Any:
        return next((grant._body for grant in self if grant._body is not None), None)

    @property
    def fences(self) -> dict[str, int]:
        """The fencing token of each name."""
        return {grant.name: grant.fence for grant in self}

    @property
    def _over(self) -> bool:
        return all(grant._over for grant in self)

    @property
    def held(self) -> bool:
        """True while all grants are held."""
        return all(grant.held for grant in self)

    @property
    def lost(self) -> bool:
        """True if any grant is lost."""
        return any(grant.lost for grant in self)

    @property
    def inherited(self) -> bool:
        """True in a forked child, which does not own its parent's grants."""
        return any(grant.inherited for grant in self)

    def check(self) -> None:
        """Raise LockLost or NotHeld unless all grants are held now."""
        for grant in self:
            grant.check()

    def _loss(self) -> LockLost:
        return next(grant for grant in self if grant.lost)._loss()
