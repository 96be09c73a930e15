"""Who has acquired what with one lock object; shared by both colours."""

from typing import Any, Generic, TypeVar

from interlock.locks.blocks import somebody
from interlock.locks.grants import BaseGrant, BaseGrants

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
