"""The writes that turn one line into another, their order, and the waiters to notify in between.

A step runs under the guard, so no other process writes meanwhile; but its process may be killed between any two
writes.  What is left then is always a line: it may have lost some claims already, and lack the new one and the
promotions.  So the order is

    the end of a record, the leaving claims, the notifications (the last in line first), then the other slots.

No claim holds before the leaving claims are gone.  A waiter may be notified before its slot says so: since no claim
overtakes, a waiter that has room holds in every line that can follow, and the next step writes that, and notifies it
again.  The first in line is notified last: it is woken in any case, by the death of this process or by the cause of
the step.  The model checker drives these functions.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from interlock.core.claims import MICROS, PENDING
from interlock.core.line import Line, Place, Step
from interlock.stores.files.slots import Slot, top_of


class Write(NamedTuple):
    """One write of one slot; without a place it frees it, and only its fence still counts."""

    row: int
    place: Place | None


class RecordWrite(NamedTuple):
    """One write of the end of the record of a completed run."""

    done: int


class Tell(NamedTuple):
    """A waiter to be told that it holds the lock, or (pending) that it should look."""

    place: Place


Action: TypeAlias = Write | RecordWrite | Tell


def line_of(slots: Sequence[Slot], done: int, now: int) -> Line:
    """Return the line that a file says.

    Args:
        slots: of the file.
        done: the end of its record.
        now: the lease clock.  A lease that ends later than it lasts is one of another boot, or damage: it is over.
    """
    places = [
        slot if slot.until <= now + slot.ttl + MICROS else slot._replace(until=now)
        for slot in slots
        if isinstance(slot, Place)
    ]
    places.sort(key=_fence)
    return Line(tuple(places), top_of(slots), done)


def _fence(place: Place) -> int:
    return place.fence


def watched(places: Sequence[Place], at: int) -> set[str]:
    """Return the liveness tokens whose death matters to a waiter: the first in line must look when any holder dies,
    the others when the one before them does."""
    if at and places[at - 1].state == PENDING:
        return {places[at - 1].alive}
    return {place.alive for place in places[:at]}


def watched_by(line: Line, id: str) -> set[str]:
    """Return the liveness tokens whose death matters to the waiter `id`."""
    return next((watched(line.places, at) for at, place in enumerate(line.places) if place.id == id), set())


def suspects(places: Sequence[Place], ids: Sequence[str]) -> list[Place]:
    """Return the places of which it matters whether their processes live, for a step of some claims.

    Those before the first waiter for whom there is no room, with that; the last in line; the claims themselves, each
    with the one before it.  A dead one elsewhere is noticed when it matters, and those who look ask again.
    """
    found, taken, limit = [], 0, places[0].capacity if places else 0
    for place in places:
        found.append(place)
        taken += place.units
        limit = min(limit, place.capacity)
        if taken > limit and place.state == PENDING:
            break
    for at, place in enumerate(places):
        if place.id in ids or at == len(places) - 1:
            found += places[max(0, at - 1) : at + 1]
    return found


def dead_among(places: Sequence[Place], ids: Sequence[str], is_alive: Callable[[str], bool]) -> set[str]:
    """Return the tokens of dead processes that matter for a step of some claims."""
    dead: set[str] = set()
    asked = {""}  # a detached claim lives by its lease
    while True:  # without the dead, others matter
        live = [place for place in places if place.alive not in dead]
        new = {place.alive for place in suspects(live, ids)} - asked
        asked |= new
        gone = {token for token in new if not is_alive(token)}
        if not gone:
            return dead
        dead |= gone


def actions(slots: Sequence[Slot], before: Line, step: Step, me: Sequence[str]) -> list[Action]:
    """Return the writes of a step, in their order, with those to be told in between.

    Args:
        slots: of the file.
        before: the line that they say.
        step: what is made of it.
        me: the claims whose callers are answered, and need not be told.
    """
    line = step.line
    if line is None:
        return []
    rows = {slot.fence: row for row, slot in enumerate(slots) if isinstance(slot, Place)}
    stay = {place.fence for place in line.places}
    going = [row for fence, row in rows.items() if fence not in stay]
    free = sorted([row for row, slot in enumerate(slots) if isinstance(slot, int)] + going, reverse=True)
    writes: list[Action] = []
    count = len(slots)
    for place in line.places:
        row = rows.get(place.fence, -1)
        if row < 0:
            row = free.pop() if free else count
            count += row == count
        if row >= len(slots) or slots[row] is not place:
            writes.append(Write(row, place))
    told = [*step.promoted, *_unaware(before, step)] if going or step.promoted else []
    told.sort(key=_fence, reverse=True)
    return [
        *([RecordWrite(line.done)] if line.done != before.done else []),
        *(Write(row, None) for row in going),
        *(Tell(place) for place in told if place.id not in me),
        *writes,
    ]


def _unaware(before: Line, step: Step) -> list[Place]:
    """Return the waiters that must look, to watch others than before."""
    places = () if step.line is None else step.line.places
    were = {place.fence: at for at, place in enumerate(before.places)}
    return [
        place
        for at, place in enumerate(places)
        if place.state == PENDING
        and place.fence in were
        and not watched(places, at) <= watched(before.places, were[place.fence])
    ]
