"""What each owner holds: by one lock object, and again and again by re-entrant locks; for both colours."""

import threading
from typing import Any, Generic, TypeVar, cast
from weakref import ref

from interlock.core.errors import LockLost
from interlock.locks.blocks import somebody
from interlock.locks.grants import HELD, RELEASED, BaseGrant, BaseGrants

G = TypeVar("G", bound=BaseGrant | BaseGrants[Any])
FEW = 16


class Owned(Generic[G]):
    """For each thread or task, the grants that it acquired and has not released, the last one at the end.

    Threads may use it at once, each for itself; one may also end what another began.
    """

    __slots__ = ("__weakref__", "_held", "_many")

    def __init__(self) -> None:
        self._held: dict[Any, list[G]] = {}
        self._many = FEW

    def _keep(self, owner: object, grant: G) -> None:
        """Note that `owner`, the caller, has acquired `grant`."""
        held = self._held
        grants = held.get(owner)
        if grants is None:
            if len(held) >= self._many:
                self._tidy()
            held[owner] = [grant]
            return
        for each in grants.copy():
            if each._block is not somebody and (each._over or (each is grants[0] and each.lost)):
                _remove(grants, each)
        grants.append(grant)
        if held.get(owner) is not grants:  # another thread took the list for an empty one
            held[owner] = grants

    def _tidy(self) -> None:
        """Forget who holds nothing any more because others released it, or lost it."""
        for owner, grants in list(self._held.items()):
            if all(grant._over or grant.lost for grant in grants):
                self._held.pop(owner, None)
                if not all(grant._over or grant.lost for grant in grants):  # the owner was faster
                    self._held.setdefault(owner, grants)
        self._many = FEW + 2 * len(self._held)

    def _abandoned(self, owner: object) -> list[G]:
        """Return what `owner` has left the `with` block of without a release."""
        return [grant for grant in self._held.get(owner, ()) if grant._block is not None and grant.abandoned()]

    def _last(self, owner: object) -> G | None:
        """Return what `owner` acquired last and has not released."""
        for grant in self._held.get(owner, ())[::-1]:
            if not grant._over:
                return grant
        return None

    def _holds(self, owner: object) -> bool:
        """Tell whether `owner` holds any of it, with its lease still good."""
        return any(grant.held for grant in self._held.get(owner, ())[:])

    def _entered_by(self, owner: object) -> G | None:
        """Return what the `with` of `owner` that ends now was entered with, if it had no block of its own."""
        grants = self._held.get(owner, [])
        for kind in (somebody, None):
            for grant in grants[::-1]:
                if grant._block is kind:
                    return grant
        return grants[-1] if grants else None

    def _forget(self, owner: object, grant: G) -> None:
        """Note that `grant` was released; it may be another owner's."""
        held = self._held
        for each in (owner, *held) if grant not in held.get(owner, ()) else (owner,):
            grants = held.get(each, [])
            try:
                grants.remove(grant)
            except ValueError:
                continue  # it is not here, or another thread was faster
            if not grants:
                held.pop(each, None)
                if grants:  # the owner was faster
                    held.setdefault(each, grants)


def _remove(grants: list[G], grant: G) -> None:
    try:
        grants.remove(grant)
    except ValueError:
        pass  # another thread was faster


HG = TypeVar("HG", bound=BaseGrant)


class Handles:
    """The handles on one hold of a re-entrant lock that are not released yet; as a `Block`, the blocks they are in.

    They are known by weak references, so that a hold is over for all when nobody can release it any more.
    """

    __slots__ = ("_mutex", "_over", "_refs")

    def __init__(self, first: BaseGrant) -> None:
        self._refs: list[ref[BaseGrant]] = [ref(first)]
        self._over = False
        self._mutex = threading.RLock()

    def add(self, handle: BaseGrant) -> bool:
        """Add a handle; False if the last one is being released meanwhile, perhaps by another thread."""
        with self._mutex:
            if not self._over:
                self._refs.append(ref(handle))
            return not self._over

    def drop(self, handle: BaseGrant) -> bool:
        """Take a handle off; True, also when called again, if no other is left and the hold is to be released."""
        with self._mutex:
            others = [each for each in self._refs if each() is not handle]
            self._over = self._over or _used(others) is None
            if not self._over:
                self._refs = others
            return self._over

    @property
    def forgotten(self) -> bool:
        """True if all of them were collected before a release."""
        return not self._over and all(each() is None for each in self._refs)

    def __call__(self) -> object | None:
        """Return None when there is no handle, except for those whose `with` blocks were left without a release."""
        return _used(self._refs)


def _used(handles: "list[ref[BaseGrant]]") -> BaseGrant | None:
    for each in handles:
        handle = each()
        if handle is not None and not handle.abandoned():
            return handle
    return None


def handles_of(hold: BaseGrant, handle: BaseGrant) -> Handles:
    """Return the handles on `hold`; `handle` is the first one if there are none yet."""
    handles = hold._block
    if handles is None:
        handles = hold._block = Handles(handle)
    return cast(Handles, handles)


class BaseReentry(BaseGrant):
    """One of several handles on the same hold of a re-entrant lock, in either colour.

    Args:
        grant: the hold.
    """

    __slots__ = ()

    _grant: Any
    _handles: Handles

    def __init__(self, grant: BaseGrant) -> None:
        self._grant = grant
        self._claim, self._pid, self.id, self.fence = grant._claim, grant._pid, grant.id, grant.fence
        self._state = HELD
        self._leaving = False
        self._block = None
        self._handles = handles_of(grant, self)  # type: ignore[misc]  # a slot of each colour's class

    @property
    def _over(self) -> bool:
        return self._state == RELEASED or self._grant._over or (self._leaving and self.lost)

    @property
    def lost(self) -> bool:
        """True once the lease of the hold is lost."""
        return self._state == HELD and self._grant.lost

    @property
    def held(self) -> bool:
        """True while neither this handle was released nor the hold lost."""
        return self._state == HELD and self._grant.held

    def _ended(self) -> bool:
        """Tell a release that there is nothing to take back."""
        if self._state == RELEASED or self.inherited:
            return True
        if self.lost:
            self._leaving = True
            return True
        return False

    @property
    def expires_in(self) -> float:
        """Seconds until the lease of the hold ends unless it is renewed."""
        return self._grant.expires_in if self.held else 0.0

    def _stay_at_least(self, seconds: float) -> None:
        if not self._grant._free_at:
            self._grant._stay_at_least(seconds)

    def _loss(self) -> LockLost:
        lost: LockLost = self._grant._loss()
        return lost

    def __repr__(self) -> str:
        return f"<{type(self).__name__} into {self._grant!r}>"


class Holds(Generic[HG]):
    """The hold of each owner, found as long as a handle on it lives.

    As in `process.WeakRegistry`, none of its code runs when one of them dies.
    """

    def __init__(self) -> None:
        self._refs: dict[tuple[str, object], ref[HG]] = {}
        self._many = FEW

    def find(self, key: str, owner: object) -> HG | None:
        """Return what `owner`, a thread or task, holds of `key`, if it lives."""
        found = self._refs.get((key, owner))
        return None if found is None else found()

    def add(self, key: str, owner: object, hold: HG) -> None:
        """Find `hold` from now on."""
        if len(self._refs) >= self._many:
            for place, each in list(self._refs.items()):
                if each() is None:
                    self._refs.pop(place, None)
            self._many = FEW + 2 * len(self._refs)
        self._refs[key, owner] = ref(hold)
