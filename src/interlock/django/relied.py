"""The locks on which the calling thread or task relies: its transactions check them before they commit."""

from contextvars import ContextVar
from weakref import ref

from interlock.client.base import BaseGrant, BaseGrants


class Relied:
    """Locks that code relies on, from when they were taken until they are released.

    It keeps none of them alive: what is forgotten is renewed no more.

    Args:
        alias: in INTERLOCK.
        grant: the grant, or the grants of several locks.

    Attributes:
        left: True once the `with` block that relies on them was left.
    """

    __slots__ = ("_refs", "alias", "left")

    def __init__(self, alias: str, grant: BaseGrant | BaseGrants[BaseGrant]) -> None:
        self.alias = alias
        self._refs = [ref(each) for each in (grant if isinstance(grant, BaseGrants) else (grant,))]
        self.left = False

    @property
    def grants(self) -> list[BaseGrant]:
        """The grants that still live."""
        return [grant for each in self._refs if (grant := each()) is not None]

    def held(self) -> list[BaseGrant]:
        """Return the grants that were not given back by hand.

        Raises:
            LockLost: one of them was lost, as far as is known here.
        """
        found = [grant for grant in self.grants if not grant.inherited]
        for grant in found:
            if grant.lost:
                raise grant._loss()
        return [grant for grant in found if grant.held]


_relied: ContextVar[tuple[Relied, ...]] = ContextVar("interlock_relied", default=())
"""The locks of the blocks that the calling thread or task is in."""


def relied_on() -> list[Relied]:
    """Return the locks of the blocks that the calling thread or task is in."""
    return [each for each in _relied.get() if not each.left]


def rely_on(relied: Relied) -> None:
    """Have each transaction that the calling thread or task commits from now on check these locks before."""
    _relied.set((*relied_on(), relied))


def no_longer(relied: Relied) -> None:
    """Undo `rely_on`: the block was left."""
    relied.left = True
    _relied.set(tuple(relied_on()))
