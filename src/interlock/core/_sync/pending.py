# Generated from _async/pending.py by tools/unasync.py; change that one.
"""The pending protocol: mutual exclusion on a store of plain records.

The store can only create, list, update and delete records.  A record is `pending` (in line, flag up), `queued` (in
line, flag down) or `using` (flag up), then gone.  A caller writes its own record first and reads the other records
afterwards; of two simultaneous callers at least one sees the other.  The flags give safety.  The order of the keys
only decides which claim yields, so skewed clocks can cost fairness, never safety.

Two incompatible holders cannot exist if (a) a completed create or update is seen by every later list, (b) pending
-> using is one atomic change of one record, or is visible as `using` before it stops being visible as `pending`,
(c) a list reads pendings no later than usings, or is a snapshot, (d) an expired record is one whose holder's own
deadline has passed, (e) ids are never used again.  Nothing is assumed about clocks of clients, speed, order of
keys or crashes.  The model checker in `model_checker` drives the code below through every interleaving;
docs/explanation/protocol.md describes the results.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, Protocol, TypeAlias

from interlock.core.claims import PENDING, QUEUED, USING, WRITER_UNITS, Claim, State, fits
from interlock.core.errors import UnknownOutcome
from interlock.core.queue import CLAIM_GONE, GIVEN_UP, POLLS_PER_SECOND, REFUSED, EnterResult, PendingRecord, Renewed

NEIGHBOUR_PAUSE = 0.005  # seconds; two flags are up, and one of them is about to be lowered


class Records(Protocol):
    """A plain store of records; each method is one or more requests, which may be separated.

    Attributes:
        poll_after: seconds after which a waiter polls unless it is notified.
    """

    poll_after: float

    def create(self, claim: Claim) -> None:
        """Write a pending record whose lease starts on arrival; idempotent by id."""

    def list(self, key: str) -> Sequence[PendingRecord]:
        """Read all records of the name, pendings no later than usings."""

    def update(self, claim: Claim, state: State) -> bool:
        """Raise (pending) or lower (queued) a record's flag; return False if it is gone."""

    def promote(self, claim: Claim) -> int | None:
        """Promote a live record from pending to using; return its fence.

        A fence is unique, and higher than all earlier fences.
        """

    def delete(self, claim: Claim) -> bool:
        """Remove the caller's own record; return True if it existed."""

    def reap(self, key: str, id: str) -> None:
        """Remove a record if it is still expired at that moment."""

    def renew(self, claims: Sequence[Claim]) -> "Sequence[Renewed]":
        """Renew the leases of live records; return for each whether it was live."""


Verdict: TypeAlias = Literal["enter", "holds", "give way", "busy", "neighbour", "gone"]
"""The verdict on a claim after a list."""


class Judgement(NamedTuple):
    """A verdict, the record's flag and fence, an expired record, and the waiters ahead."""

    verdict: Verdict
    up: bool
    fence: int
    junk: str | None
    ahead: int = 0


def evaluate(me: str, records: Sequence[PendingRecord]) -> Judgement:
    """Decide from one list what the claim `me` may do.

    Args:
        me: the claim's id.
        records: the listed records.

    Returns:
        "enter": no incompatible claim has its flag up, none before it waits.  "holds": it was promoted already.
        "give way": another claim is before it.  "busy": first in line, and the lock is in use.  "neighbour": first in
        line, but another's flag is up and about to be lowered.  "gone": no such record, or expired.
    """
    mine = next((r for r in records if r.id == me), None)
    junk = next((r.id for r in records if r.expired and r.id != me), None)
    if mine is None or mine.expired:
        return Judgement("gone", False, 0, junk)
    if mine.state == USING:
        return Judgement("holds", True, mine.fence, junk)
    others = [r for r in records if r.id != me and not r.expired]
    using = [(r.units, r.capacity) for r in others if r.state == USING]
    raised = [(r.units, r.capacity) for r in others if r.state == PENDING]
    before = [(r.units, r.capacity) for r in others if r.state != USING and r.key < mine.key]
    free = fits(mine.units, mine.capacity, using + raised)
    # Readers may enter together.  Counted units may not: otherwise later claims that take turns in raising their
    # flags could overtake the first in line forever.
    together = mine.capacity == WRITER_UNITS and all(capacity == WRITER_UNITS for _, capacity in before)
    first = not before or (together and fits(mine.units, mine.capacity, using + before))
    if not first:
        verdict: Verdict = "give way"
    elif free:
        verdict = "enter"
    else:
        verdict = "busy" if using else "neighbour"
    return Judgement(verdict, mine.state == PENDING, 0, junk, len(before))


class Pending:
    """The pending protocol on records, performed step by step in the client.

    Args:
        records: the store of the records.
    """

    __slots__ = ("records",)

    def __init__(self, records: Records) -> None:
        self.records = records

    def enter(self, claim: Claim, may_queue: bool, already_queued: bool) -> EnterResult:
        """Enter like `Queue.enter`; after an unknown outcome the id is never reused."""
        try:
            result = self._enter(claim, may_queue, already_queued)
        except UnknownOutcome:
            result = GIVEN_UP
        if result.state == "gone":
            self._forget(claim)
        return result

    def _enter(self, claim: Claim, wait: bool, again: bool) -> EnterResult:
        records = self.records
        if again:
            renewed = records.renew((claim,))
            if not renewed[0]:
                return CLAIM_GONE
        else:
            records.create(claim)  # 1. claim first ...
        while True:
            line = records.list(claim.spec.key)  # 2. ... then look
            verdict, up, fence, junk, ahead = evaluate(claim.id, line)
            pause = NEIGHBOUR_PAUSE if verdict == "neighbour" else max(records.poll_after, ahead / POLLS_PER_SECOND)
            del line, ahead  # locals that live over an `await` are part of the model checker's state
            if verdict == "gone":
                return CLAIM_GONE
            if verdict == "holds":
                return EnterResult("using", fence)
            if verdict == "enter" and up:
                granted = records.promote(claim)  # 3. a refusal is not a grant
                return CLAIM_GONE if granted is None else EnterResult("using", granted)
            if verdict != "give way" and not up:
                raised = records.update(claim, PENDING)  # raise the flag, THEN look again
                if not raised:
                    return CLAIM_GONE
            else:
                break
        if not wait and verdict != "neighbour":
            records.delete(claim)
            return REFUSED
        if verdict == "give way" and up:
            lowered = records.update(claim, QUEUED)  # step aside, stay in line
            if not lowered:
                return CLAIM_GONE
        if junk is not None:
            records.reap(claim.spec.key, junk)
        return EnterResult("pending", poll_after=pause)

    def _forget(self, claim: Claim) -> None:
        with suppress(UnknownOutcome):  # its lease expires, and the id is never reused
            self.records.delete(claim)
