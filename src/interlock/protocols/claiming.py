"""Acquire, on any Queue: enter the line, wait for the turn, start again when the claim is lost.

The lease of a claim is counted from *before* the request that created or renewed it was sent, on the claimer's
own monotonic clock; the store counts it from the arrival.  So a claim whose own deadline has not passed has not
expired in the store either, whatever the two clocks show.
"""

from typing import NamedTuple

from interlock.claims import Claim
from interlock.effects import FRESH_ID, NOW, Before, Op, Sleep, Subscribe, Wait
from interlock.errors import UnknownOutcome
from interlock.protocols.queue import BUSY, GIVEN_UP, Queue, Turn

LOST_REPLIES = 3  # ask again so many times in a row; then the caller must know


class Held(NamedTuple):
    """A claim that holds the lock.

    Attributes:
        claim: the claim (its id may differ from the first one asked with).
        fence: the fencing token.
        deadline: when its lease ends, on the holder's monotonic clock.
    """

    claim: Claim
    fence: int
    deadline: float


class Attempt:
    """One call of acquire; `claim` is always the one to take out of the line if the call is broken off.

    `first` is the store's answer if the claim has entered already.
    """

    __slots__ = ("claim", "deadline", "first", "started", "wait")

    def __init__(
        self, claim: Claim, started: float, deadline: float | None, wait: bool, first: Turn | None = None
    ) -> None:
        self.claim = claim
        self.started = started
        self.deadline = deadline
        self.wait = wait
        self.first = first


def acquire(queue: Queue, attempt: Attempt) -> Op[Held | None]:
    """Enter the line with `attempt.claim` and wait until it holds the lock.

    Args:
        queue: the store.
        attempt: claim, clock of the start, deadline (monotonic; None for no limit), one try or wait.

    Returns:
        The held claim, or None when the time is over or the try was refused; then nothing is left behind.

    Raises:
        StoreError: the store failed; the caller then leaves with `attempt.claim`.
    """
    claim = attempt.claim
    sent = now = attempt.started
    first = attempt.first
    wakeup = told = None
    again = False
    lost_replies = 0
    while True:
        if told is not None:
            turn = Turn("using", told.fence)
        elif first is not None:
            turn = first
            first = None
        else:
            try:
                turn = yield from queue.enter(claim, wakeup, attempt.wait, again)
                if turn is not GIVEN_UP:
                    lost_replies = 0
            except UnknownOutcome:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise
                turn = BUSY
            if turn.asked:
                sent = now
        if turn.state == "using":
            alive = yield Before(sent + claim.terms.ttl)
            if alive:
                return Held(claim, turn.fence, sent + claim.terms.ttl)
            yield from queue.leave(claim)
        if turn.state == "using" or turn.state == "gone":
            fresh = yield FRESH_ID
            claim = attempt.claim = claim._replace(id=fresh)
            again = False
            told = fresh = None
            if attempt.deadline is not None:
                # Leases that end before the replies come would else keep the caller here for ever.
                in_time = yield Before(attempt.deadline)
                if not in_time:
                    return None
            if turn is GIVEN_UP:
                lost_replies += 1
                if lost_replies > LOST_REPLIES:
                    raise UnknownOutcome(f"no answer to {lost_replies} claims in a row: is the store there?")
                yield Sleep(turn.look_again * 2**lost_replies)
        elif turn.state == "refused":
            return None
        elif turn.state == "occupied" and wakeup is None:
            wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
        else:
            again = again or turn.state == "pending"
            in_time = True
            if attempt.deadline is not None:
                in_time = yield Before(attempt.deadline)
            if not in_time:
                yield from queue.leave(claim)
                return None
            if turn.state == "pending" and attempt.wait and wakeup is None:
                wakeup = yield Subscribe(queue)  # type: ignore[arg-type]
            elif wakeup is not None and again:
                heartbeat = min(turn.look_again, claim.terms.ttl / 3)
                told = yield Wait(wakeup, heartbeat, attempt.deadline)
                if told is not None and told.id != claim.id:
                    told = None
                if told is not None:
                    continue
            else:
                yield Sleep(turn.look_again)
        now = yield NOW
