"""The line of a name as one text, and its steps: for a database where the client decides and the row is swapped.

A line of text is a claim: its id, until when its lease is, its fence (0 while it waits), what it asks for, who it is,
and where it listens, if it does. The first two have a fixed place, so that a statement of SQL can extend a lease.
"""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from interlock.core.claims import PENDING, SEPARATOR, USING, Claim, State
from interlock.core.positions import has_room, promotable
from interlock.runtime.process import HOST, pid

DIGITS = 16  # of a time and a fence: microseconds, until the year 2286
FRESH = 0.75  # of a lease that must be left, else a waiter extends it when it looks


class LinePlace(NamedTuple):
    """A claim in a line.

    Attributes:
        id: the claim's id.
        until: microseconds; when its lease ends.
        fence: 0 while it waits.
        units, capacity: what it asks for.
        since: microseconds; when it came.
        host, pid, thread, label: who it is.
        channel: where it listens; empty if it does not.
    """

    id: str
    until: int
    fence: int
    units: int
    capacity: int
    since: int
    host: str
    pid: int
    thread: str
    label: str
    channel: str = ""

    @property
    def state(self) -> State:
        """Pending or using."""
        return USING if self.fence else PENDING


class Line(NamedTuple):
    """The line of a name, as a database has it.

    Attributes:
        places: its claims, also those whose leases have ended.
        top: the highest fence that was issued.
        version: of the row; 0 if there is none.
        now: microseconds; the database's clock when it was read.
    """

    places: tuple[LinePlace, ...]
    top: int
    version: int
    now: int


class LineStep(NamedTuple):
    """What a step makes of a line.

    Attributes:
        line: what is to be written; None if nothing is.
        answer: what the step answers.
    """

    line: Line | None
    answer: tuple[object, ...]


def mark(id: str) -> str:
    """Return with what the text of a claim begins."""
    return f"\n{quote(id, safe='')} "


def about(claim: Claim) -> str:
    """Return with what the text of a claim ends: who it is."""
    who = " ".join(quote(text, safe="") for text in (claim.who, claim.spec.label))
    return f" {quote(HOST, safe='')} {pid()} {who}"


def text_of(places: Sequence[LinePlace]) -> bytes:
    """Return a line as it is written."""
    return "".join(_text(place) for place in places).encode()


def _text(place: LinePlace) -> str:
    host, thread, label = (quote(text, safe="") for text in (place.host, place.thread, place.label))
    return (
        f"{mark(place.id)}{place.until:0{DIGITS}d} {place.fence:0{DIGITS}d} {place.units} {place.capacity} "
        f"{place.since} {host} {place.pid} {thread} {label}{place.channel and ' '}{place.channel}"
    )


def places_in(text: bytes) -> tuple[LinePlace, ...]:
    """Return the claims of a line that was read."""
    return tuple(_place(line) for line in text.decode().split("\n")[1:])


def _place(line: str) -> LinePlace:
    id, until, fence, units, capacity, since, host, pid, thread, label, *channel = line.split(" ")
    return LinePlace(
        unquote(id), int(until), int(fence), int(units), int(capacity), int(since), unquote(host), int(pid),
        unquote(thread), unquote(label), *channel[:1],
    )  # fmt: skip


def place_of(claim: Claim, ttl: int, now: int, channel: str = "") -> LinePlace:
    """Return a claim as it comes into a line.

    Args:
        claim: the claim.
        ttl: microseconds of its lease.
        now: microseconds.
        channel: where it listens.
    """
    spec = claim.spec
    return LinePlace(
        claim.id, now + ttl, 0, spec.units, spec.capacity, now, HOST, pid(), claim.who, spec.label, channel
    )  # fmt: skip


class _Walked(NamedTuple):
    line: Line
    removed: int
    promoted: list[LinePlace]

    def promoted_but(self, id: str) -> str:
        """Return the promoted claims except for one, as `promotions_in` reads them."""
        return "\n".join(f"{each.channel} {each.id} {each.fence}" for each in self.promoted if each.id != id)


def _walk(line: Line, leaves: str = "", grants: bool = True) -> _Walked:
    """Remove the claim that leaves ('*' for all) and those whose leases have ended; promote the next ones."""
    left: list[LinePlace] = []
    promoted: list[LinePlace] = []
    removed = 0
    for place in line.places:
        if place.until <= line.now:
            continue
        if leaves in ("*", place.id):
            removed += 1
            if not place.fence:
                promoted.append(place)
        else:
            left.append(place)
    top = line.top
    for place in list(promotable(left)) if grants else ():
        top = max(top + 1, line.now)
        promoted.append(place._replace(fence=top))
        left[left.index(place)] = promoted[-1]
    return _Walked(line._replace(places=tuple(left), top=top), removed, promoted)


def enter(line: Line, claim: Claim, ttl: int, mode: str, channel: str = "") -> LineStep:
    """Ask for the lock, or where a claim stands.

    Args:
        line: as it was read.
        claim: the one that asks.
        ttl: microseconds of its lease.
        mode: "try", "wait", or "again" for one that is known to stand in line.
        channel: where it listens.

    Returns:
        With the answer: state, fence, microseconds until a lease before it ends, who else was promoted, whether its
        lease was extended, and how many wait before it.
    """
    walked = _walk(line)
    line = walked.line
    others = walked.promoted_but(claim.id)
    index = next((index for index, place in enumerate(line.places) if place.id == claim.id), None)
    if index is not None:
        mine = line.places[index]
        write = bool(walked.promoted) or mine.until - line.now < ttl * FRESH
        if write:
            extended = mine._replace(until=max(mine.until, line.now + ttl), channel=channel or mine.channel)
            line = line._replace(places=(*line.places[:index], extended, *line.places[index + 1 :]))
        return LineStep(
            line if write else None,
            (mine.state, mine.fence, _soonest(line, index), others, write, _waiting(line, index)),
        )
    newcomer = place_of(claim, ttl, line.now, channel)
    if mode == "again":
        state = "gone"
    elif has_room(line.places, newcomer.units, newcomer.capacity):
        state = "using"
        newcomer = newcomer._replace(fence=max(line.top + 1, line.now))
        line = line._replace(top=newcomer.fence)
    else:
        state = "refused" if mode == "try" else "pending"
    soonest = _soonest(line, len(line.places))
    enters = state in ("using", "pending")
    if enters:
        line = line._replace(places=(*line.places, newcomer))
    return LineStep(
        line if enters or walked.promoted else None,
        (state, newcomer.fence, soonest, others, True, _waiting(walked.line, None)),
    )


def _soonest(line: Line, index: int) -> int | None:
    return min((place.until - line.now for place in line.places[:index]), default=None)


def _waiting(line: Line, index: int | None) -> int:
    return sum(not place.fence for place in line.places[:index])


def leave(line: Line, id: str, grants: bool) -> LineStep:
    """Take a claim out of the line, '*' for all, and promote the claims that then have room.

    Args:
        line: as it was read.
        id: of the claim that leaves.
        grants: False if nobody may be promoted now.

    Returns:
        With the answer: how many were removed, and which were promoted.
    """
    walked = _walk(line, id, grants)
    changed = bool(walked.promoted) or len(walked.line.places) < len(line.places)
    return LineStep(walked.line if changed else None, (walked.removed, walked.promoted_but("")))


def renew(line: Line, leases: dict[str, int]) -> LineStep:
    """Extend leases.

    Args:
        line: as it was read.
        leases: microseconds, by the claims' ids.

    Returns:
        With the answer: the ids of those that are still there.
    """
    places = tuple(
        place._replace(until=max(place.until, line.now + leases[place.id]))
        if place.id in leases and place.until > line.now
        else place
        for place in line.places
    )
    alive = tuple(place.id for place in places if place.id in leases and place.until > line.now)
    return LineStep(line._replace(places=places) if alive else None, alive)


def is_of(key: str) -> tuple[bytes, bytes]:
    """Return the namespace and the name of a key, as they are written."""
    namespace, _, name = key.partition(SEPARATOR)
    return namespace.encode(), name.encode()
