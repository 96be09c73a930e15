"""The one state machine of a lock: a line of places, and the steps on it.  Pure: no clock, no I/O.

Places stand in the order of their arrival.  A waiting place may become a holder when

    its units + the units of every live place before it <= the smallest capacity among them.

A step is done as a whole: nothing happens between claim and look, so a pending place is only ever a waiter.  Stores
that decide in the client call these functions; Redis and PostgreSQL have them once more in their own language, and
one property test compares them.

The fence of a place is issued when it enters the line.  No place overtakes, so the order of fences is that of the
grants, and a holder of the same process can tell its successor the fence before the store is told (local hand-off).
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Any, Concatenate, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from interlock.core.claims import DONE, MICROS, PENDING, USING, Claim, fits

LARGEST_SLOTS = 1024  # the largest capacity whose holders are numbered
BATCH = 250  # promotions in one step
DROPS = 1000  # claims of `once` that leave in one step after a completed run
T = TypeVar("T")
unchecked: Callable[[type[T], tuple[object, ...]], T] = tuple.__new__  # type: ignore[assignment]
"""Makes a named tuple: its own constructor is a Python function, and takes three times as long."""
NOBODY: AbstractSet[str] = frozenset()

RENEWAL_GONE, RENEWAL_OK, RENEWAL_WANTED = 0, 1, 2
"""What became of a claim in a renewal; WANTED: it is kept, and another claim waits."""

IS_DONE: Literal["done"] = "done"
"""The answer to a claim of `once` while the record of a completed run is kept."""


class StoreTime(NamedTuple):
    """What the store says of the present moment.

    Attributes:
        lease: microseconds by the clock that leases are judged by.
        stamp: microseconds since the epoch, by the time of day.
        dead: liveness tokens of processes that have ended, where the store can tell.
    """

    lease: int
    stamp: int
    dead: AbstractSet[str] = NOBODY


class Origin(NamedTuple):
    """The process that asks.

    Attributes:
        process_name: its host and its pid, as they are shown.
        channel: where it listens; "" if it does not listen.
        liveness_token: its liveness token, on stores that notice the death of a process.
    """

    process_name: str = ""
    channel: str = ""
    liveness_token: str = ""


class QueuedClaim(NamedTuple):
    """A claim in a line.

    Attributes:
        id: of the claim.
        state: "pending" or "using"; "done" of a record, as `look` shows it.
        units, capacity: what it asks for.
        until: when its lease ends, in microseconds of the lease clock.
        ttl: its lease, in microseconds.
        renewal_count: how often it was renewed.
        fence: issued when it entered the line.
        since: when it entered, microseconds since the epoch.
        held: since when it holds the lock, as `since`; 0 for a waiter.
        slot: its number among the holders of a semaphore.
        once: True if it wants to run only while no record of a completed run is kept.
        who, label: the thread or task, and a free text.
        process_name, channel, liveness_token: as in `Origin`.
    """

    id: str
    state: Literal["pending", "using", "done"]
    units: int
    capacity: int
    until: int
    ttl: int
    renewal_count: int
    fence: int
    since: int
    held: int
    slot: int
    once: bool
    who: str
    label: str
    process_name: str
    channel: str
    liveness_token: str


class Line(NamedTuple):
    """The places of one name, the highest fence that was issued for it, and the end of its `once` record (stamp)."""

    places: tuple[QueuedClaim, ...] = ()
    max_fence: int = 0
    record_expires: int = 0


EMPTY = Line()


class StepResult(NamedTuple):
    """What a step makes of a line.

    Attributes:
        line: the new line; None if nothing has changed.
        answer: of `enter` and `adopt`: the place, IS_DONE, or None (refused or gone); of `leave`: whether it was
            there; of `renew`: a number for each id; of `evict`: how many.
        promoted: holders to be told of their fence, and waiters to be told to look again.
        look_in: microseconds after which a waiter should look again, since a lease before its own ends then.
        more: True if work on the waiters (promotions, departures) is left for the next step.
        places: the number of places in the line; 0 if no claim entered the line, or a free lock was acquired.
    """

    line: Line | None
    answer: Any
    promoted: tuple[QueuedClaim, ...] = ()
    look_in: int = 0
    more: bool = False
    places: int = 0


Transition: TypeAlias = Callable[Concatenate[Line, StoreTime, ...], StepResult]
StepNow: TypeAlias = Callable[Concatenate[str, Transition, ...], StepResult | None]
"""Performs a step of a key at once; None if the line is busy."""
"""A step, waiting for the line as it is now, the store's clock and its arguments."""


def live(line: Line, clock: StoreTime) -> tuple[QueuedClaim, ...]:
    """Return the places whose leases have not ended and whose processes live."""
    places, now, dead = line.places, clock.lease, clock.dead
    for place in places:
        if place.until <= now or (dead and place.liveness_token in dead):
            return tuple(each for each in places if each.until > now and each.liveness_token not in dead)
    return places


def is_nothing(line: Line, clock: StoreTime) -> bool:
    """Tell whether a store may forget the line: the time of day alone gives higher fences from now on."""
    return not line.places and line.record_expires <= clock.stamp and line.max_fence < clock.stamp


def settle(line: Line, clock: StoreTime) -> StepResult:
    """Drop the places that are over, and promote from the head the places that have room.

    While a completed run is recorded, no claim of `once` waits: such claims leave first, and only then are waiters
    promoted.
    """
    places = live(line, clock)
    over: tuple[QueuedClaim, ...] = ()
    if places and line.record_expires > clock.stamp:
        over = tuple(islice((place for place in places if place.once and place.state == PENDING), DROPS))
        if over:
            gone = {place.id for place in over}
            places = tuple(place for place in places if place.id not in gone)
    promoted, more = _promotions(places, clock) if len(over) < DROPS else ((), True)
    if promoted:
        holders = {place.id: place for place in promoted}
        places = tuple(holders.get(place.id, place) for place in places)
    changed = None if places is line.places else Line(places, line.max_fence, line.record_expires)
    return StepResult(changed, None, (*promoted, *over), 0, more)


def enter(
    line: Line, clock: StoreTime, claim: Claim, origin: Origin, may_queue: bool, already_queued: bool
) -> StepResult:
    """Ask for the lock, or where a claim stands; extends its lease; idempotent by the claim's id.

    Args:
        line, clock: the line as it is.
        claim: the claim.
        origin: its process.
        may_queue: False: one try, which leaves nothing behind if it is refused.
        already_queued: True if the claim is known to be in the line: if it is not there, it is gone.
    """
    spec = claim.spec
    if not line.places:  # the short cut of a free lock
        if already_queued:
            return StepResult(None, None)
        if spec.once and line.record_expires > clock.stamp:
            return StepResult(None, IS_DONE)
        place = _place(claim, origin, clock, line.max_fence, USING)
        granted: StepResult = unchecked(
            StepResult, (unchecked(Line, ((place,), place.fence, line.record_expires)), place, (), 0, False, 0)
        )
        return granted
    settled = settle(line, clock)
    now = line if settled.line is None else settled.line
    for at, place in enumerate(now.places):
        if place.id == claim.id:
            place = place._replace(
                until=max(place.until, clock.lease + place.ttl), channel=origin.channel or place.channel
            )
            now = now._replace(places=(*now.places[:at], place, *now.places[at + 1 :]))
            others = tuple(each for each in settled.promoted if each.id != claim.id)
            return StepResult(now, place, others, _look_in(now, clock, at), settled.more, len(now.places))
    if already_queued:
        return settled
    if spec.once and now.record_expires > clock.stamp:
        return settled._replace(answer=IS_DONE)
    if fits(spec.units, spec.capacity, [(each.units, each.capacity) for each in now.places]):
        place = _place(claim, origin, clock, now.max_fence, USING, _free_slot(now.places, spec.units, spec.capacity))
    elif may_queue:
        place = _place(claim, origin, clock, now.max_fence, PENDING)
    else:
        return settled
    now, size = Line((*now.places, place), place.fence, now.record_expires), len(now.places)
    return StepResult(now, place, settled.promoted, _look_in(now, clock, size), settled.more, size + 1)


def leave(line: Line, clock: StoreTime, id: str, keep_for: int = 0) -> StepResult:
    """Take a claim out and hand over.

    Args:
        line, clock: the line as it is.
        id: of the claim.
        keep_for: microseconds for which a record is kept that the holder's run was completed; 0 for no record.

    Answers True if it was there; with `keep_for`: if it held the lock.
    """
    places = line.places
    if len(places) == 1 and places[0].id == id and not keep_for:  # the short cut of a lone holder
        there = places[0].until > clock.lease and places[0].liveness_token not in clock.dead
        left_alone: StepResult = unchecked(
            StepResult, (unchecked(Line, ((), line.max_fence, line.record_expires)), there, (), 0, False, 0)
        )
        return left_alone
    settled = settle(line, clock)
    now = line if settled.line is None else settled.line
    mine = next((each for each in now.places if each.id == id), None)
    if mine is None or (keep_for and mine.state != USING):
        return settled._replace(answer=False)
    left = tuple(each for each in now.places if each is not mine)
    now = Line(left, now.max_fence, clock.stamp + keep_for if keep_for else now.record_expires)
    after = settle(now, clock)
    promoted = (*(each for each in settled.promoted if each.id != id), *after.promoted)
    return StepResult(now if after.line is None else after.line, True, promoted, 0, settled.more or after.more)


def complete(line: Line, clock: StoreTime, id: str, keep_for: int, stored_result: str) -> StepResult:
    """As `leave` of a holder whose run was completed; if it answers True, the store keeps the result in this step."""
    return leave(line, clock, id, keep_for)


def renew(line: Line, clock: StoreTime, ids: Sequence[str]) -> StepResult:
    """Extend leases that have not ended; answers GONE, KEPT or WANTED for each id."""
    settled = settle(line, clock)
    now = line if settled.line is None else settled.line
    wanted = RENEWAL_OK + any(place.state == PENDING for place in now.places)
    answers = dict.fromkeys(ids, RENEWAL_GONE)
    places = []
    for place in now.places:
        if place.id in answers:
            answers[place.id] = wanted
            place = place._replace(
                until=max(place.until, clock.lease + place.ttl), renewal_count=place.renewal_count + 1
            )
        places.append(place)
    if any(answers.values()):
        now = now._replace(places=tuple(places))
    return StepResult(None if now is line else now, [answers[id] for id in ids], settled.promoted, 0, settled.more)


def adopt(line: Line, clock: StoreTime, id: str, claim: Claim, origin: Origin) -> StepResult:
    """Rename a claim that holds the lock: it goes on under another id, with its fence, slot and place.

    Args:
        line, clock: the line as it is.
        id: of the claim; it can't be used any more, unless the new one is the same and only the lease is another.
        claim: the new id, with the lease that counts from now on.
        origin: the process that has it now.
    """
    settled = settle(line, clock)
    now = line if settled.line is None else settled.line
    for at, place in enumerate(now.places):
        if place.id == claim.id != id:
            return settled._replace(answer=place)  # it was done, and the reply was lost
        if place.id == id and place.state == USING:
            ttl = int(claim.spec.ttl * MICROS)
            place = place._replace(
                id=claim.id, ttl=ttl, until=clock.lease + ttl, renewal_count=0, who=claim.who, label=claim.spec.label,
                process_name=origin.process_name, channel=origin.channel, liveness_token=origin.liveness_token,
            )  # fmt: skip
            now = now._replace(places=(*now.places[:at], place, *now.places[at + 1 :]))
            return settled._replace(line=now, answer=place)
    return settled


def evict(line: Line, clock: StoreTime, id: str | None) -> StepResult:
    """Take out one claim, or all claims, of any program; waiters among them are told to look."""
    places = live(line, clock)
    out = tuple(place for place in places if id is None or place.id == id)
    left = Line(
        () if id is None else tuple(place for place in places if place.id != id), line.max_fence, line.record_expires
    )
    settled = settle(left, clock)
    told = tuple(place for place in out if place.state == PENDING)
    now = left if settled.line is None else settled.line
    return StepResult(now if out or settled.line else None, len(out), (*settled.promoted, *told), 0, settled.more)


def delete_record(line: Line, clock: StoreTime) -> StepResult:
    """Forget the record of a completed run; answers whether there was one."""
    return (
        StepResult(line._replace(record_expires=0), line.record_expires > clock.stamp)
        if line.record_expires
        else StepResult(None, False)
    )


def read_record(line: Line, clock: StoreTime) -> StepResult:
    """Answer whether the record of a completed run is kept: the store then reads its value in this step."""
    return StepResult(None, line.record_expires > clock.stamp)


def has_slots(units: int, capacity: int) -> bool:
    """Tell whether the holders of such a lock have slots."""
    return units == 1 and 2 <= capacity <= LARGEST_SLOTS


def _place(
    claim: Claim, origin: Origin, clock: StoreTime, max_fence: int, state: Literal["pending", "using"], slot: int = 0
) -> QueuedClaim:
    id, (_, units, capacity, ttl, label, once), who = claim
    lease, stamp, _ = clock
    ttl = int(ttl * MICROS)
    fence = stamp if stamp > max_fence else max_fence + 1
    held = stamp if state == USING else 0
    place: QueuedClaim = unchecked(
        QueuedClaim,
        (id, state, units, capacity, lease + ttl, ttl, 0, fence, stamp, held, slot, once, who, label, *origin),
    )
    return place


def _promotions(places: Sequence[QueuedClaim], clock: StoreTime) -> tuple[tuple[QueuedClaim, ...], bool]:
    """Return the waiters whose turn has come, as holders, and whether there are more than a batch."""
    promoted: list[QueuedClaim] = []
    taken, limit = 0, places[0].capacity if places else 0
    slots: set[int] | None = None
    for place in places:
        taken += place.units
        limit = min(limit, place.capacity)
        if taken > limit:
            break
        if place.state == PENDING:
            if len(promoted) == BATCH:
                return tuple(promoted), True
            slot = 0
            if has_slots(place.units, place.capacity):
                slots = _slots(places) if slots is None else slots
                slot = next(number for number in range(len(slots) + 1) if number not in slots)
                slots.add(slot)
            promoted.append(place._replace(state=USING, held=clock.stamp, slot=slot))
    return tuple(promoted), False


def _free_slot(places: Sequence[QueuedClaim], units: int, capacity: int) -> int:
    """Return the lowest number that no holder has."""
    if not has_slots(units, capacity):
        return 0
    taken = _slots(places)
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def _slots(places: Sequence[QueuedClaim]) -> set[int]:
    """Return the slot numbers of the holders."""
    return {each.slot for each in places if each.state == USING and has_slots(each.units, each.capacity)}


def _look_in(line: Line, clock: StoreTime, at: int) -> int:
    """Return after how long the place `at` should look again: when a lease before its own ends."""
    return min((place.until for place in line.places[:at]), default=clock.lease) - clock.lease


def look(line: Line, clock: StoreTime) -> StepResult:
    """Look at a line; answers the live places and the record; `look_in` is what the lease clock shows."""
    return StepResult(None, (*live(line, clock), *record_in(line.record_expires, clock)), (), clock.lease)


def record_in(record_expires: int, clock: StoreTime) -> tuple[QueuedClaim, ...]:
    """Return the record of a completed run as a place that ends when it does; none if it is over."""
    left = record_expires - clock.stamp
    if left <= 0:
        return ()
    return (QueuedClaim("", DONE, 0, 0, clock.lease + left, 0, 0, 0, 0, 0, 0, True, "", "", "", "", ""),)


# -- as text: one claim a line, readable with `cat`; the first line has the highest fence and the end of the record --

FORM = "interlock-2"


def encode(line: Line) -> str:
    """Return a line as text."""
    return "\n".join((f"{FORM} {line.max_fence} {line.record_expires}", *map(_write, line.places), ""))


def _write(place: QueuedClaim) -> str:
    id, state, units, capacity, until, ttl, renewal_count, fence, since, held, slot, once, *texts = place
    words = " ".join(map(_word, texts))
    numbers = f"{units} {capacity} {until} {ttl} {renewal_count} {fence} {since} {held} {slot}"
    return f"{_word(id)} {state} {numbers} {once} {words}"


@lru_cache(4096)
def _word(text: str) -> str:
    return "%2D" if text == "-" else quote(text, safe=":/@") or "-"


def decode(text: str) -> Line:
    """Return the line that a text says.

    Raises:
        ValueError: it says none.
    """
    head, *rows = text.splitlines()
    form, max_fence, record_expires = head.split(" ")
    if form != FORM:
        raise ValueError(f"a line of interlock begins with {FORM!r}, not with {form[:40]!r}")
    return Line(tuple(map(_read, rows)), int(max_fence), int(record_expires))


def _read(row: str) -> QueuedClaim:
    words = row.split(" ")
    id, state, *numbers = words[:11]
    if state not in (PENDING, USING):
        raise ValueError(f"{state[:40]!r} is no state of a claim")
    units, capacity, until, ttl, renewal_count, fence, since, held, slot = map(int, numbers)
    once, *texts = words[11:]
    who, label, process_name, channel, liveness_token = ("" if each == "-" else unquote(each) for each in texts)
    return QueuedClaim(
        unquote(id), state, units, capacity, until, ttl, renewal_count, fence, since, held, slot, once == "True",
        who, label, process_name, channel, liveness_token,
    )  # fmt: skip
