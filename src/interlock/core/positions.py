"""The folded line: the same state machine where the store can do a whole step at once.

Inside one atomic step nobody can look between claim and look, so a pending claim is only ever a waiter: no flags,
no second look.  Holders come first in the line, waiters follow in the order of their arrival, and

    a claim may go pending -> using when its units + the units of every live claim before it <= capacity.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from interlock.core.claims import PENDING


class Position(Protocol):
    """A live claim's position in a line."""

    @property
    def units(self) -> int:
        """What it asks for."""

    @property
    def capacity(self) -> int:
        """What it believes there is."""

    @property
    def state(self) -> str:
        """pending or using."""


P = TypeVar("P", bound=Position)


def promotable(positions: Iterable[P]) -> Iterator[P]:
    """Yield the waiters whose turn has come.

    Args:
        positions: the live claims of one name, in line order.

    Yields:
        Each pending position that may be used now, from the head; nobody overtakes one that may not.
    """
    taken = 0
    limit: int | None = None
    for position in positions:
        taken += position.units
        limit = position.capacity if limit is None else min(limit, position.capacity)
        if taken > limit:
            return
        if position.state == PENDING:
            yield position


def has_room(positions: Iterable[Position], units: int, capacity: int) -> bool:
    """Tell whether a newcomer at the end of the line may use the lock at once.

    Args:
        positions: the live claims of one name.
        units, capacity: what the newcomer asks for.
    """
    for position in positions:
        units += position.units
        capacity = min(capacity, position.capacity)
    return units <= capacity


def watched(positions: Sequence[P], index: int) -> Sequence[P]:
    """Return whose death would matter to the waiter at `index`.

    The first waiter watches the holders, every other one only the claim before it; so a death wakes one waiter,
    not all.
    """
    before = positions[:index]
    if before and before[-1].state == PENDING:
        return before[-1:]
    return before
