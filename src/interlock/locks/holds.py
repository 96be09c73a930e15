"""The holds of re-entrant locks: a grant, with the handles on it that are not released yet."""

import threading
from typing import Generic, TypeVar, cast
from weakref import ref

from interlock.locks.grants import BaseGrant

G = TypeVar("G", bound=BaseGrant)
FEW = 16


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


class Holds(Generic[G]):
    """The hold of each owner, found as long as a handle on it lives.

    As in `process.WeakRegistry`, none of its code runs when one of them dies.
    """

    def __init__(self) -> None:
        self._refs: dict[tuple[str, object], ref[G]] = {}
        self._many = FEW

    def find(self, key: str, owner: object) -> G | None:
        """Return what `owner`, a thread or task, holds of `key`, if it lives."""
        found = self._refs.get((key, owner))
        return None if found is None else found()

    def add(self, key: str, owner: object, hold: G) -> None:
        """Find `hold` from now on."""
        if len(self._refs) >= self._many:
            for place, each in list(self._refs.items()):
                if each() is None:
                    self._refs.pop(place, None)
            self._many = FEW + 2 * len(self._refs)
        self._refs[key, owner] = ref(hold)
