"""The line of one name as the server keeps it: what the scripts of the Redis store do with exclusive claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

SUCCESSORS = 16


class Record(NamedTuple):
    """A claim in the line.

    Attributes:
        id: of the claim.
        fence: 0 if none was issued yet.
        alive: False once its lease has ended.
        whole: False if it is of a kind that can't be a successor nor have one.
    """

    id: str
    fence: int
    alive: bool = True
    whole: bool = True


class Line(NamedTuple):
    """All that the server knows.

    Attributes:
        holder: the one that holds the lock.
        waiting: in the order of their arrival.
        fence: the last one issued.
        made: the last waiter that was made a successor, while those behind it may have to be.
    """

    holder: Record | None = None
    waiting: tuple[Record, ...] = ()
    fence: int = 0
    made: str = ""


Promoted = tuple[tuple[str, int], ...]
"""Those who hold the lock now, with their fences."""
Pending = tuple[str, int]
"""The claim whose successor one is, and the fence; "" and 0 if of none."""


def without(line: Line, id: str) -> Line:
    """Return the line without a waiter."""
    return line._replace(waiting=tuple(each for each in line.waiting if each.id != id))


def is_holder(line: Line, id: str) -> bool:
    """Tell whether a claim holds the lock, with its lease still good."""
    return line.holder is not None and line.holder.id == id and line.holder.alive


def is_there(line: Line, id: str) -> bool:
    """Tell whether a claim holds the lock or waits, with its lease still good."""
    return is_holder(line, id) or any(each.id == id and each.alive for each in line.waiting)


def expired(line: Line, id: str) -> Line:
    """Return the line after the lease of a claim has ended."""

    def over(record: Record) -> Record:
        return record._replace(alive=False) if record.id == id else record

    return line._replace(holder=line.holder and over(line.holder), waiting=tuple(map(over, line.waiting)))


def evicted(line: Line, id: str) -> Line:
    """Return the line without a claim, before anybody is promoted."""
    if line.holder is not None and line.holder.id == id:
        line = line._replace(holder=None)
    return without(line, id)


def hand_over(line: Line) -> tuple[Line, Promoted]:
    """Promote the first live waiter if nobody holds the lock, or whoever does is dead."""
    holder, waiting, fence, made = line
    if holder is not None and holder.alive:
        return line, ()
    while waiting:
        head, *rest = waiting
        waiting = tuple(rest)
        if head.alive:
            fence = max(fence, head.fence or fence + 1)
            head = head._replace(fence=head.fence or fence)
            return Line(head, waiting, fence, made), ((head.id, head.fence),)
    return Line(None, (), fence), ()


def enter(line: Line, id: str, again: bool, whole: bool = True) -> tuple[Line, int | Pending | None, Promoted]:
    """A claim enters, or asks where it stands.

    Args:
        line: the line.
        id: the claim.
        again: True if it only asks.
        whole: as in `Record`.

    Returns:
        The line; the fence if it holds the lock, else what it waits for, None if it is gone; who was promoted.
    """
    if line.holder is not None and line.holder.id == id and line.holder.alive:
        return line, line.holder.fence, ()
    found = next((each for each in line.waiting if each.id == id), None)
    if found is not None and not found.alive:
        line = without(line, id)
        found = None
    line, promoted = hand_over(line)
    if line.holder is not None and line.holder.id == id:
        return line, line.holder.fence, ()
    if found is not None:
        return line, ("", 0), promoted
    if again:
        return line, None, promoted
    if line.holder is None:
        return Line(Record(id, line.fence + 1, whole=whole), (), line.fence + 1), line.fence + 1, promoted
    before = line.waiting[-1] if line.waiting else line.holder
    fence = line.fence + 1 if whole and before.whole and before.fence else 0
    line = line._replace(waiting=(*line.waiting, Record(id, fence, whole=whole)), fence=max(line.fence, fence))
    return line, (before.id, fence) if fence else ("", 0), promoted


def leave(line: Line, id: str, let_in: tuple[str, int] | None = None) -> tuple[Line, Promoted]:
    """A claim leaves; whoever is next is promoted, and if that was no successor, those behind it become successors.

    Args:
        line: the line.
        id: the claim.
        let_in: the successor, with its fence, that knows already that it holds the lock: nobody tells it.
    """
    line, promoted = _left(line, id)
    return line, tuple(each for each in promoted if each != let_in)


def _left(line: Line, id: str) -> tuple[Line, Promoted]:
    if line.holder is None or line.holder.id != id:
        return hand_over(without(line, id))
    alone = line.holder.alive and line.holder.whole
    successors = {each.id for each in line.waiting if each.fence}
    line, promoted = hand_over(line._replace(holder=None))
    head = line.holder
    if not alone or head is None or not head.whole:
        return line, promoted
    if head.id not in successors:
        return _make_successors(line, ""), promoted
    return _make_successors(line, line.made) if line.made else line, promoted


def _make_successors(line: Line, made: str) -> Line:
    """Make successors of some waiters behind `made`, of the first ones if it is empty."""
    waiting = list(line.waiting)
    last = next((place for place, each in enumerate(waiting) if each.id == made), -1)
    if made and (last < 0 or not waiting[last].fence):
        return line._replace(made="")
    fence, made = line.fence, ""
    for place, each in enumerate(waiting[last + 1 : last + 1 + SUCCESSORS], last + 1):
        if each.fence or not each.whole:
            break
        fence += 1
        made = each.id
        waiting[place] = each._replace(fence=fence)
    return line._replace(waiting=tuple(waiting), fence=fence, made=made)


class Server(NamedTuple):
    """What the server does, so that a safeguard can be taken out."""

    enter: Callable[[Line, str, bool, bool], tuple[Line, int | Pending | None, Promoted]] = enter
    leave: Callable[[Line, str, tuple[str, int] | None], tuple[Line, Promoted]] = leave
    hand_over: Callable[[Line], tuple[Line, Promoted]] = hand_over


SERVER = Server()
