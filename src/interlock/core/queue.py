"""The answers of a store to a claim, and the state of one call of acquire."""

from collections.abc import Callable, Sequence
from typing import Generic, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from interlock.core.claims import PENDING, QUEUED, Claim, ClaimView, State
from interlock.core.errors import StoreError


class Outage(NamedTuple):
    """A store is unavailable, but perhaps soon available again, such as in a fail-over.

    Attributes:
        error: the error of the store.
        wait_limit: seconds to wait for the store if the caller has set no limit.
    """

    error: StoreError
    wait_limit: float


class EnterResult(NamedTuple):
    """The state of a claim.

    Attributes:
        state: "using": it holds the lock with `fence`.
            "pending": it waits in line; poll again after `poll_after` seconds unless notified before.
            "occupied": it is not in line; subscribe, and enter again with the waiter.
            "refused": the try failed, and nothing was left behind.
            "done": the record of a completed run of `once` exists; nothing was left behind.
            "gone": it expired or was evicted; or (with an `outage`, or GIVEN_UP) the client gave it up after a lost
            reply, so that it may be in the line; start again with a fresh id, after `poll_after`
            seconds.
            "busy": the store cannot be asked now; ask again after `poll_after` seconds.
            "indeterminate": no reply came, so that the claim may be in the line; ask again.
        fence: the fencing token of a holder.
        poll_after: seconds.
        lease_extended: False if the store did not take part in this answer, so that the lease is
            unchanged.
        outage: the outage of the store, if waiting is worthwhile; None otherwise.
        slot: the slot of a holder of a semaphore.
        waiter: a waiter of `subscribe` for a pending claim whose caller gave none.
    """

    state: Literal["using", "pending", "occupied", "refused", "done", "gone", "busy", "indeterminate"]
    fence: int = 0
    poll_after: float = 1.0
    lease_extended: bool = True
    outage: Outage | None = None
    slot: int = 0
    waiter: "Wakeable | None" = None


POLLS_PER_SECOND = (
    20  # polls per second of one long line by all its waiters, on stores where a poll reads the whole line
)

OCCUPIED = EnterResult("occupied")
REFUSED = EnterResult("refused")
RUN_ALREADY_DONE = EnterResult("done")
CLAIM_GONE = EnterResult("gone", poll_after=0.0)
GIVEN_UP = EnterResult("gone", poll_after=0.01)
BUSY = EnterResult("busy", poll_after=0.0005, lease_extended=False)


class Granted(NamedTuple):
    """The message of a hand-over: claim `id` holds the lock with `fence` and `slot`."""

    id: str
    fence: int
    slot: int = 0


class Held(NamedTuple):
    """A claim that holds the lock.

    Attributes:
        claim: the claim; its id may differ from the first one.
        fence: the fencing token.
        deadline: the end of its lease, on the holder's clock.
        slot: the slot of a holder of a semaphore.
    """

    claim: Claim
    fence: int
    deadline: float
    slot: int = 0


Renewed: TypeAlias = int | StoreError
"""The outcome of a renewal: gone, renewed, renewed and wanted, or an error."""


class PendingRecord(NamedTuple):
    """A record of a claim.

    Attributes:
        id: the claim's id.
        key: its position in the order; any total order is allowed.
        units, capacity: the units of the claim and of the lock.
        state: pending, queued or using.
        fence: the fence from its promotion; 0 before.
        expired: True if its lease had expired, by the store's clock, when it was read.
    """

    id: str
    key: int
    units: int
    capacity: int
    state: State
    fence: int
    expired: bool


class Wakeable(Protocol):
    """Wakes a waiting thread or task, from any thread."""

    def wake(self, message: Granted | None = None) -> None:
        """Wake the waiter; a message is kept until the waiter reads it."""


W_co = TypeVar("W_co", bound=Wakeable, covariant=True)


class AcquireCall(Generic[W_co]):
    """One call of acquire; `claim` is the claim to withdraw if the call is interrupted.

    `first_answer` is the store's answer if the claim has entered; `now` is the clock.  `entered` is False while no
    claim of the call can be in the line, so that nothing must be withdrawn.  Each time that its claim begins to wait
    in line, `on_queued` is called with this object (`queued` is the latest such claim), and `check_line` with the
    claims of the name; `check_line` can raise.  The client calls `on_left` with each claim that it gives up and that
    may be in the line.  `done` is True for a claim of `once` that came too late.  With `max_waiters`, the call ends
    if this many waiters are ahead of its claim; `full_line` is then the line.

    The state between two requests: `moment` is the time before the next request, `sent` the time before the last one
    in which the store took part, from which the lease counts; `in_line` is True if the claim is known to be in the
    line, `uncertain` if it may have entered, because a request had no reply; `granted` is the received hand-over;
    `counted` is True if the waiters ahead have been counted; `unanswered` counts the requests in a row without a
    reply; `unavailable_since` is the start of an outage of the store, or None; `left_behind` is the error if a claim
    that was granted too late could not be withdrawn.
    """

    __slots__ = (
        "check_line", "claim", "closed", "counted", "deadline", "done", "entered", "first_answer", "full_line",
        "granted", "in_line", "left_behind", "max_waiters", "may_queue", "moment", "now", "on_left", "on_queued",
        "queued", "sent", "started", "unanswered", "unavailable_since", "uncertain", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        now: Callable[[], float],
        started: float,
        deadline: float | None,
        may_queue: bool,
        first_answer: EnterResult | None = None,
    ) -> None:
        self.claim = claim
        self.now = now
        self.started = started
        self.deadline = deadline
        self.may_queue = may_queue
        self.first_answer = first_answer
        self.entered = first_answer is not None and first_answer.state not in NOT_IN_LINE
        self.closed = False
        self.done = False
        self.waiter: W_co | None = None
        self.on_queued: Callable[[AcquireCall[W_co]], object] | None = None
        self.on_left: Callable[[Claim], object] = bool
        self.check_line: Callable[[Sequence[ClaimView]], None] | None = None
        self.queued: Claim | None = None
        self.moment = self.sent = started
        self.in_line = self.uncertain = False
        self.granted: Granted | None = None
        self.unanswered = 0
        self.unavailable_since: float | None = None
        self.left_behind: StoreError | None = None
        self.max_waiters: int | None = None
        self.full_line: list[ClaimView] | None = None
        self.counted = False

    def give_up(self) -> None:
        """End the call soon, as if its time were over.  Any thread may call this."""
        self.deadline = self.started
        if self.waiter is not None:
            self.waiter.wake()

    def call_off(self) -> None:
        """End the call with StoreError soon, because its connection is closed."""
        self.closed = True  # in this order, because a call that subscribes checks the flag afterwards
        if self.waiter is not None:
            self.waiter.wake()


def waiters_ahead(line: Sequence[ClaimView], id: str | None = None) -> list[ClaimView]:
    """Return the waiters ahead of a claim in line; none if it does not wait any more.

    Args:
        line: the claims in order.
        id: the claim's id; None for all waiters.
    """
    waiting = [view for view in line if view.state in (PENDING, QUEUED)]
    ids = [view.id for view in waiting]
    return waiting if id is None else waiting[: ids.index(id)] if id in ids else []


NOT_IN_LINE = ("busy", "occupied", "refused", "done")


Feature: TypeAlias = Literal[
    "slot", "once", "detach", "wanted", "readers", "downgrade", "semaphores", "order", "waiters"
]
ALL: frozenset[Feature] = frozenset(
    {"slot", "once", "detach", "wanted", "readers", "downgrade", "semaphores", "order", "waiters"}
)
