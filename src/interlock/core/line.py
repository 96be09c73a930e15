"""The state machine of a lock: a line of claims, and its steps, without clock or I/O.

The claims are in the order of their arrival.  A waiting claim becomes a holder when

    its units + the units of every live claim before it <= the smallest capacity among them.

A step is atomic: nothing happens between claim and look, so a pending claim is only ever a waiter.  Stores that
decide in the client call these functions; Redis and PostgreSQL have ports in their own languages, and one property
test compares them.

The fence of a claim is issued when it enters the line.  No claim overtakes, so fences have the order of the grants,
and a holder can pass the fence to its successor in the same process before the store knows (local hand-off).
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import islice
from typing import Any, Concatenate, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote, unquote

from interlock.core.claims import DONE, MICROS, PENDING, USING, Claim, fits

LARGEST_SLOTS = 1024  # the largest capacity with slots
BATCH = 250  # promotions in one step
DROPS = 1000  # claims of `once` removed in one step after a completed run
T = TypeVar("T")
unchecked: Callable[[type[T], tuple[object, ...]], T] = tuple.__new__  # type: ignore[assignment]
"""Makes a named tuple without its Python constructor, which takes three times as long."""
NO_TOKENS: AbstractSet[str] = frozenset()

RENEWAL_GONE, RENEWAL_OK, RENEWAL_WANTED = 0, 1, 2
"""The outcome of a renewal; the last one: renewed, and another claim waits."""

IS_DONE: Literal["done"] = "done"
"""The answer to a claim of `once` while the record of a completed run exists."""


class StoreTime(NamedTuple):
    """The present time of the store.

    Attributes:
        lease: microseconds by the clock of the leases.
        stamp: microseconds since the epoch, by the time of day.
        dead: liveness tokens of processes that have ended, if the store detects them.
    """

    lease: int
    stamp: int
    dead: AbstractSet[str] = NO_TOKENS


class Origin(NamedTuple):
    """The calling process.

    Attributes:
        process_name: its host and pid, for listings.
        channel: its channel for messages; "" without one.
        liveness_token: its liveness token, on stores that detect the death of a process.
    """

    process_name: str = ""
    channel: str = ""
    liveness_token: str = ""


class QueuedClaim(NamedTuple):
    """A claim in a line.

    Attributes:
        id: of the claim.
        state: "pending" or "using"; "done" for a record, in the answer of `look`.
        units, capacity: the units of the claim and of the lock.
        until: the end of its lease, in microseconds of the lease clock.
        ttl: its lease, in microseconds.
        renewal_count: the number of its renewals.
        fence: issued when it entered the line.
        since: the time of its entry, microseconds since the epoch.
        held: the time of its acquisition, like `since`; 0 for a waiter.
        slot: its slot among the holders of a semaphore.
        once: True for a claim of `once`.
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
    """The claims of one name, the highest issued fence, and the end of its record."""

    places: tuple[QueuedClaim, ...] = ()
    max_fence: int = 0
    record_expires: int = 0


EMPTY = Line()


class StepResult(NamedTuple):
    """The result of a step on a line.

    Attributes:
        line: the new line; None if unchanged.
        answer: of `enter` and `adopt`: the claim, IS_DONE, or None (refused or gone); of `leave`: True if the claim
            was in the line; of `renew`: a number for each id; of `evict`: the number of claims.
        promoted: new holders, to be notified of their fence, and waiters that must poll.
        look_in: microseconds after which a waiter should poll, because a lease before its own ends then.
        more: True if work on waiters (promotions, departures) is left for the next step.
        places: the number of claims in the line; 0 if no claim entered, or a free lock was acquired.
    """

    line: Line | None
    answer: Any
    promoted: tuple[QueuedClaim, ...] = ()
    look_in: int = 0
    more: bool = False
    places: int = 0


Transition: TypeAlias = Callable[Concatenate[Line, StoreTime, ...], StepResult]
"""A step; its arguments are the line, the store's time, and its own arguments."""
StepNow: TypeAlias = Callable[Concatenate[str, Transition, ...], StepResult | None]
"""Performs a step of a key immediately; None if the line is busy."""


def live(line: Line, clock: StoreTime) -> tuple[QueuedClaim, ...]:
    """Return the claims whose leases have not expired and whose processes live."""
    places, now, dead = line.places, clock.lease, clock.dead
    for place in places:
        if place.until <= now or (dead and place.liveness_token in dead):
            return tuple(each for each in places if each.until > now and each.liveness_token not in dead)
    return places


def is_nothing(line: Line, clock: StoreTime) -> bool:
    """Return True if a store may delete the line: the time alone gives higher fences."""
    return not line.places and line.record_expires <= clock.stamp and line.max_fence < clock.stamp


def settle(line: Line, clock: StoreTime) -> StepResult:
    """Drop expired claims, and promote claims from the head that fit.

    While the record of a completed run exists, no claim of `once` waits: such claims leave first, and only then are
    waiters promoted.
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
    """Enter the line, or return the claim's state; idempotent by id; renews the lease.

    Args:
        line, clock: the present line and time.
        claim: the claim.
        origin: the claim's process.
        may_queue: False for one try, which leaves nothing behind if it is refused.
        already_queued: True if the claim is known to be in the line; if it is not found, it is gone.
    """
    spec = claim.spec
    if not line.places:  # the shortcut for a free lock
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
    """Remove a claim and hand over.

    Args:
        line, clock: the present line and time.
        id: the claim's id.
        keep_for: microseconds for which the record of a completed run is kept; 0 for no record.

    Answers True if the claim was in the line; with `keep_for`: if it held the lock.
    """
    places = line.places
    if len(places) == 1 and places[0].id == id and not keep_for:  # the shortcut for a lone holder
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
    """Leave with a completed run; if it answers True, the store keeps the result."""
    return leave(line, clock, id, keep_for)


def renew(line: Line, clock: StoreTime, ids: Sequence[str]) -> StepResult:
    """Renew leases that have not expired; answers the outcome for each id."""
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
    """Rename a held claim, or change its lease; its fence, slot and position stay.

    A claim that takes the whole lock can keep fewer units: a writer becomes a reader.  Units never grow.  Other
    claims keep theirs, so that slots stay unique.

    Args:
        line, clock: the present line and time.
        id: the claim's previous id, which becomes invalid unless the new id is the same.
        claim: the new id, lease and units.
        origin: the new process of the claim.
    """
    settled = settle(line, clock)
    now = line if settled.line is None else settled.line
    for at, place in enumerate(now.places):
        if place.id == claim.id != id:
            return settled._replace(answer=place)  # done before, and the reply was lost
        if place.id == id and place.state == USING:
            ttl = int(claim.spec.ttl * MICROS)
            units = min(place.units, claim.spec.units) if place.units == place.capacity else place.units
            place = place._replace(
                id=claim.id, units=units, ttl=ttl, until=clock.lease + ttl, renewal_count=0, who=claim.who,
                label=claim.spec.label, process_name=origin.process_name, channel=origin.channel,
                liveness_token=origin.liveness_token,
            )  # fmt: skip
            now = now._replace(places=(*now.places[:at], place, *now.places[at + 1 :]))
            after = settle(now, clock)
            return after._replace(line=after.line or now, answer=place, promoted=(*settled.promoted, *after.promoted))
    return settled


def evict(line: Line, clock: StoreTime, id: str | None) -> StepResult:
    """Remove one claim, or all claims; notify removed waiters to poll."""
    places = live(line, clock)
    out = tuple(place for place in places if id is None or place.id == id)
    left = Line(
        () if id is None else tuple(place for place in places if place.id != id), line.max_fence, line.record_expires
    )
    settled = settle(left, clock)
    evicted_waiters = tuple(place for place in out if place.state == PENDING)
    now = left if settled.line is None else settled.line
    return StepResult(
        now if out or settled.line else None, len(out), (*settled.promoted, *evicted_waiters), 0, settled.more
    )


def delete_record(line: Line, clock: StoreTime) -> StepResult:
    """Delete the record of a completed run; answers True if there was one."""
    return (
        StepResult(line._replace(record_expires=0), line.record_expires > clock.stamp)
        if line.record_expires
        else StepResult(None, False)
    )


def read_record(line: Line, clock: StoreTime) -> StepResult:
    """Answer whether a record exists; the store then reads its value in this step."""
    return StepResult(None, line.record_expires > clock.stamp)


def has_slots(units: int, capacity: int) -> bool:
    """Return True if the holders of such a lock have slots."""
    return units == 1 and 2 <= capacity <= LARGEST_SLOTS


def _place(
    claim: Claim, origin: Origin, clock: StoreTime, max_fence: int, state: Literal["pending", "using"], slot: int = 0
) -> QueuedClaim:
    id, (_, units, capacity, ttl, label, once, _), who = claim
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
    """Return the waiters whose turn has come, and whether more than a batch remain."""
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
    """Return the lowest free slot."""
    if not has_slots(units, capacity):
        return 0
    taken = _slots(places)
    return next(slot for slot in range(len(taken) + 1) if slot not in taken)


def _slots(places: Sequence[QueuedClaim]) -> set[int]:
    """Return the slots of the holders."""
    return {each.slot for each in places if each.state == USING and has_slots(each.units, each.capacity)}


def _look_in(line: Line, clock: StoreTime, at: int) -> int:
    """Return when the claim at `at` should poll: when a lease before its own ends."""
    return min((place.until for place in line.places[:at]), default=clock.lease) - clock.lease


def look(line: Line, clock: StoreTime) -> StepResult:
    """List the live claims and the record; `look_in` is the present lease time."""
    return StepResult(None, (*live(line, clock), *record_in(line.record_expires, clock)), (), clock.lease)


def record_in(record_expires: int, clock: StoreTime) -> tuple[QueuedClaim, ...]:
    """Return the record of a completed run as a claim that ends with it; None without."""
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
    """Return the line that a text encodes.

    Raises:
        ValueError: the text is not a line.
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
