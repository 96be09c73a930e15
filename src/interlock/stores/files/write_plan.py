"""The writes that turn one line into another, their order, and notifications.

A step runs under the guard, so no other process writes; but its process may be killed between any two
writes.  The file then still contains a valid line: some claims are removed already, and the new claim and the
promotions are missing.  Therefore the order is

    the end of a record, the leaving claims, the notifications (the last in line first), then the other slots.

No waiter becomes a holder before the leaving claims are removed.  A waiter may be notified before its slot says
"using": since no claim overtakes, a waiter for which there is room is a holder in every line that can follow; the
next step writes that, and notifies it again.  The first in line is notified last, because it wakes in any case: at
the death of this process, or by the cause of the step.  The model checker executes these functions
(`model_checker.files`).
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from interlock.core.claims import MICROS, PENDING
from interlock.core.line import Line, QueuedClaim, StepResult
from interlock.stores.files.slots import Slot, top_of


class Write(NamedTuple):
    """A write of one slot; without a claim the slot becomes free, and keeps its fence."""

    row: int
    place: QueuedClaim | None


class RecordWrite(NamedTuple):
    """A write of the end of the record of a completed run; 0 removes the record."""

    done: int


class Tell(NamedTuple):
    """A notification: the waiter holds the lock now, or (pending) must poll."""

    place: QueuedClaim


Action: TypeAlias = Write | RecordWrite | Tell
BY_FENCE = attrgetter("fence")


def line_of(slots: Sequence[Slot], done: int, now: int) -> Line:
    """Return the line of a file.

    Args:
        slots: the slots of the file.
        done: the end of its record.
        now: the lease clock.  A lease that ends later than now plus its length is of another boot or damaged, and
            counts as expired.
    """
    places = [
        slot if slot.until <= now + slot.ttl + MICROS else slot._replace(until=now)
        for slot in slots
        if isinstance(slot, QueuedClaim)
    ]
    places.sort(key=BY_FENCE)
    return Line(tuple(places), top_of(slots), done)


def watched(places: Sequence[QueuedClaim], at: int) -> set[str]:
    """Return the tokens of the processes that a waiter must watch.

    The first waiter watches all holders, every other one the waiter before it.
    """
    if at and places[at - 1].state == PENDING:
        return {places[at - 1].liveness_token}
    return {place.liveness_token for place in places[:at]}


def watched_by(line: Line, id: str) -> set[str]:
    """Return the tokens of the processes that the waiter `id` must watch."""
    return next((watched(line.places, at) for at, place in enumerate(line.places) if place.id == id), set())


def dead_among(places: Sequence[QueuedClaim], ids: Sequence[str], is_alive: Callable[[str], bool]) -> set[str]:
    """Return the tokens of dead processes that matter for a step of some claims.

    It asks about all places up to and including the first waiter, the last in line, and the claims themselves, each
    with the place before it.  A dead process elsewhere is noticed by the waiter behind it, which watches it.
    """
    last = len(places) - 1
    first = next((at for at, place in enumerate(places) if place.state == PENDING), last)
    asked = {place.liveness_token for place in places[: first + 1]}
    for at, place in enumerate(places):
        if place.id in ids or at == last:
            asked |= {places[max(0, at - 1)].liveness_token, place.liveness_token}
    dead = {token for token in asked if token and not is_alive(token)}  # a detached claim has no process
    if dead:  # other places come forward
        others = {place.liveness_token for place in places} - asked
        dead |= {token for token in others if token and not is_alive(token)}
    return dead


def actions(slots: Sequence[Slot], before: Line, step: StepResult, me: Sequence[str]) -> list[Action]:
    """Return the writes of a step in order, with the notifications in between.

    Args:
        slots: the slots of the file.
        before: the line in them.
        step: the result of the step on that line.
        me: the claims that need no notification, because their callers get the answer.
    """
    line = step.line
    if line is None:
        return []
    rows = {slot.fence: row for row, slot in enumerate(slots) if isinstance(slot, QueuedClaim)}
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
    told.sort(key=BY_FENCE, reverse=True)
    return [
        *([RecordWrite(line.record_expires)] if line.record_expires != before.record_expires else []),
        *(Write(row, None) for row in going),
        *(Tell(place) for place in told if place.id not in me),
        *writes,
    ]


def _unaware(before: Line, step: StepResult) -> list[QueuedClaim]:
    """Return the waiters that must poll, because they must watch other processes."""
    places = () if step.line is None else step.line.places
    were = {place.fence: at for at, place in enumerate(before.places)}
    return [
        place
        for at, place in enumerate(places)
        if place.state == PENDING
        and place.fence in were
        and not watched(places, at) <= watched(before.places, were[place.fence])
    ]
