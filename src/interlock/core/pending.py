"""The pending protocol: mutual exclusion on a store that can only create, list, update and delete records.

A record is `pending` (in line, flag up), `queued` (in line, flag down) or `using` (flag up), then gone.  Whoever
wants the lock writes its record first and looks at the others' afterwards; of two that do so at once, at least
one sees the other.  Flags make it safe.  The order of the keys only decides who gives way, so skewed clocks can
cost fairness, never safety.

Two incompatible holders cannot exist if (a) a completed create or update is seen by every later list, (b) pending
-> using is one atomic change of one record, or is visible as `using` before it stops being visible as `pending`,
(c) a list reads pendings no later than usings, or is a snapshot, (d) an expired record is one whose holder's own
deadline has passed, (e) ids are never used again.  Nothing is assumed about clocks of clients, speed, order of
keys or crashes.  The model checker in `proof` drives the code below through every
interleaving; docs/explanation/protocol.md tells what it found.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from interlock.core.claims import PENDING, QUEUED, USING, WRITER_UNITS, Claim, ClaimView, State, fits
from interlock.core.effects import Op
from interlock.core.errors import UnknownOutcome
from interlock.core.oldstore import BaseStore
from interlock.core.queue import GIVEN_UP, GONE, REFUSED, EnterResult, Renewed

NEIGHBOUR_PAUSE = 0.005  # seconds; two flags are up, one of them is about to be lowered


class Record(NamedTuple):
    """One record of a register.

    Attributes:
        id: the claim's id.
        key: its place in the order; any total order will do.
        units, capacity: what it asks for.
        state: pending, queued or using.
        fence: what the store gave it with the promotion; 0 before.
        expired: True when its lease had ended, by the store's clock, when it was read.
    """

    id: str
    key: Any
    units: int
    capacity: int
    state: State
    fence: int
    expired: bool


class Register(Protocol):
    """A dumb store, as seen by the protocol: each method returns the request that performs it.

    Results of the requests: create None; list a sequence of Record; update True, or False if the record is gone
    or expired; promote the fence, or None if the record is gone, expired or not pending; promote_if_free the
    same, and None if an incompatible flag is up; delete True if it was there; renew a bool for each claim.
    """

    folds: bool
    """True if promote_if_free is one atomic statement of the store."""
    poll: float
    """Seconds after which a waiter looks again if nobody told it."""

    def create(self, claim: Claim, wakeup: Any) -> Any:
        """Write a pending record whose lease starts on arrival; the same id again changes nothing."""

    def list(self, key: str) -> Any:
        """Read all records of the name, pendings no later than usings."""

    def update(self, claim: Claim, state: State) -> Any:
        """Raise (pending) or lower (queued) the flag of a record that is there and has not expired."""

    def promote(self, claim: Claim) -> Any:
        """pending -> using, with a fence that the store issues in the same step."""

    def promote_if_free(self, claim: Claim) -> Any:
        """As promote, if no incompatible flag is up and nobody who is before it waits: one statement."""

    def delete(self, claim: Claim) -> Any:
        """Remove the caller's own record and wake the next in line."""

    def reap(self, key: str, id: str) -> Any:
        """Remove somebody's record if it is still expired at that moment."""

    def renew(self, claims: Sequence[Claim], wakeup: Any) -> Any:
        """Extend leases of records that are there and have not expired; note the wake-up if there is one."""

    def look(self, key: str) -> Any:
        """List the live claims as ClaimViews."""

    def evict(self, key: str, id: str | None) -> Any:
        """Remove records, whoever's they are; the result is how many."""


class Verdict(Enum):
    """What a claim may do after a look."""

    ENTER = "enter"
    HOLDS = "holds"
    GIVE_WAY = "give way"
    BUSY = "busy"
    NEIGHBOUR = "neighbour"
    GONE = "gone"


class Judgement(NamedTuple):
    """A verdict, the flag and fence of the record judged, and an expired record to remove."""

    verdict: Verdict
    up: bool
    fence: int
    junk: str | None


def judge(me: str, records: Sequence[Record]) -> Judgement:
    """Decide, from one list, what the claim `me` may do.

    Args:
        me: the claim's id.
        records: what the register showed.

    Returns:
        ENTER: nobody incompatible has a flag up, nobody before it waits.  HOLDS: it was promoted already.
        GIVE_WAY: somebody is before it.  BUSY: first in line, and the lock is in use.  NEIGHBOUR: first in line,
        but another's flag is up and about to be lowered.  GONE: no such record, or expired.
    """
    mine = next((r for r in records if r.id == me), None)
    junk = next((r.id for r in records if r.expired and r.id != me), None)
    if mine is None or mine.expired:
        return Judgement(Verdict.GONE, False, 0, junk)
    if mine.state == USING:
        return Judgement(Verdict.HOLDS, True, mine.fence, junk)
    others = [r for r in records if r.id != me and not r.expired]
    using = [(r.units, r.capacity) for r in others if r.state == USING]
    raised = [(r.units, r.capacity) for r in others if r.state == PENDING]
    before = [(r.units, r.capacity) for r in others if r.state != USING and r.key < mine.key]
    free = fits(mine.units, mine.capacity, using + raised)
    # Readers may pass together.  Counted units may not: the first in line could be overtaken for ever by later
    # claims that take turns in raising their flags.
    together = mine.capacity == WRITER_UNITS and all(capacity == WRITER_UNITS for _, capacity in before)
    first = not before or (together and fits(mine.units, mine.capacity, using + before))
    if not first:
        verdict = Verdict.GIVE_WAY
    elif free:
        verdict = Verdict.ENTER
    else:
        verdict = Verdict.BUSY if using else Verdict.NEIGHBOUR
    return Judgement(verdict, mine.state == PENDING, 0, junk)


class Pending(BaseStore):
    """A Queue made of a Register: the pending protocol, step by step in the client."""

    def __init__(self, register: Register) -> None:
        self.register = register

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`; a claim with a request of unknown outcome is given up, its id never used again."""
        try:
            result = yield from self._enter(claim, wakeup, wait, again)
        except UnknownOutcome:
            result = GIVEN_UP
        if result.state == "gone":
            yield from self._forget(claim)
        return result

    def _enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        register = self.register
        if again:
            renewed = yield register.renew((claim,), wakeup)
            if not renewed[0]:
                return GONE
        else:
            yield register.create(claim, wakeup)  # 1. claim first ...
            if register.folds:
                fence = yield register.promote_if_free(claim)
                if fence is not None:
                    return EnterResult("using", fence)
        while True:
            records = yield register.list(claim.spec.key)  # 2. ... then look
            verdict, up, fence, junk = judge(claim.id, records)
            del records
            if verdict is Verdict.GONE:
                return GONE
            if verdict is Verdict.HOLDS:
                return EnterResult("using", fence)
            if verdict is Verdict.ENTER and up:
                # 3. A refusal is no grant; the folded statement looks once more, a plain one must not be used
                # in its place.
                request = register.promote_if_free(claim) if register.folds else register.promote(claim)
                fence = yield request
                if fence is not None:
                    return EnterResult("using", fence)
                if not register.folds:
                    return GONE
            elif verdict is not Verdict.GIVE_WAY and not up:
                raised = yield register.update(claim, PENDING)  # raise the flag, THEN look again
                if not raised:
                    return GONE
            else:
                break
        if not wait and verdict is not Verdict.NEIGHBOUR:
            yield register.delete(claim)
            return REFUSED
        if verdict is Verdict.GIVE_WAY and up:
            lowered = yield register.update(claim, QUEUED)  # step aside, stay in line
            if not lowered:
                return GONE
        if junk is not None:
            yield register.reap(claim.spec.key, junk)
        return EnterResult("pending", 0, NEIGHBOUR_PAUSE if verdict is Verdict.NEIGHBOUR else register.poll)

    def _forget(self, claim: Claim) -> Op[None]:
        try:
            yield self.register.delete(claim)
        except UnknownOutcome:
            pass  # its lease ends by itself, and the id is never used again

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        removed: bool = yield self.register.delete(claim)
        return removed

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        renewed: list[Renewed] = yield self.register.renew(claims, None)
        return renewed

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        views: list[ClaimView] = yield self.register.look(key)
        return views

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        count: int = yield self.register.evict(key, id)
        return count
