"""A run inside another run: two of one name would wait for each other for ever."""

import os
from typing import TYPE_CHECKING

from interlock.cli.child import HELD
from interlock.cli.options import Order

if TYPE_CHECKING:
    from interlock import Locks


def waits_for_itself(order: Order, locks: "Locks") -> str:
    """Return why a run would wait as long as the runs around it last; "" if it need not, or does not wait.

    Claims are found by their ids, so neither another store, nor another namespace, nor a run that has ended meanwhile
    is taken for one that holds this lock.

    Args:
        order: what to do.
        locks: of its store.

    Raises:
        StoreError: the line can't be looked at.
    """
    around = os.environ.get(HELD, "").split()
    if not around or order.wait == 0:
        return ""
    from interlock.core.claims import fits

    line = locks.claims(order.name)
    held = [(view.units, view.capacity) for view in line if view.state == "using" and view.id in around]
    if not held:
        return ""
    # A claim that must wait for a run around this one keeps all behind it waiting too: nobody is overtaken.
    wanted = [(view.units, view.capacity) for view in line if view.state != "using"]
    if all(fits(units, capacity, held) for units, capacity in (*wanted, spec_of(order))):
        return ""
    return f"{order.name!r} is held by the interlock run that this one is a part of, and is not free before that ends"


def spec_of(order: Order) -> tuple[int, int]:
    """Return how much of which capacity a run asks for."""
    from interlock.core.claims import WRITER_UNITS

    if order.permits is not None:
        return order.units, order.permits
    return (1, WRITER_UNITS) if order.shared else (1, 1)
