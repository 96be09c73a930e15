"""What every store looks like from above: a place for lines, its queues, and one call of acquire."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from interlock.core.claims import Claim, ClaimView
from interlock.core.errors import StoreError


class Outage(NamedTuple):
    """A store can't be asked now, but perhaps soon: a server is away, or another one takes over from it.

    Attributes:
        error: what it said.
        wait_limit: seconds to wait for it where the caller has set no limit.
    """

    error: StoreError
    wait_limit: float


class EnterResult(NamedTuple):
    """Where a claim stands.

    Attributes:
        state: "using": it holds the lock with `fence`.
            "pending": it is in the line; look again after `look_again` seconds unless notified before.
            "occupied": it is not in the line yet; subscribe, and enter again with the waiter.
            "refused": the try did not succeed and nothing of it is left.
            "done": it is a claim of `once`, and the record of a completed run is kept; nothing of it is left.
            "gone": it expired or was evicted, or (with a `look_again`) was given up because a request of it had no
            answer; start again with a fresh id, after `look_again` seconds.
            "busy": the store could not be asked now; ask again after `look_again` seconds.
            "indeterminate": it was asked and did not answer, so that the claim may be in the line; ask again.
        fence: the fencing token, when using.
        look_again: seconds.
        asked: False if the store did not take part in this answer, so that the claim's lease is where it was.
        outage: why the store could not be asked, where that is worth waiting for; None otherwise.
        slot: the number among the holders of a semaphore, when using.
        waiter: is notified of the claim from now on, when pending and the caller gave none: of `subscribe`.
    """

    state: Literal["using", "pending", "occupied", "refused", "done", "gone", "busy", "indeterminate"]
    fence: int = 0
    look_again: float = 1.0
    asked: bool = True
    outage: Outage | None = None
    slot: int = 0
    waiter: "Tells | None" = None


OCCUPIED = EnterResult("occupied")
REFUSED = EnterResult("refused")
DONE_BEFORE = EnterResult("done")
GONE = EnterResult("gone", look_again=0.0)
GIVEN_UP = EnterResult("gone", look_again=0.01)
BUSY = EnterResult("busy", look_again=0.0005, asked=False)


class Granted(NamedTuple):
    """The message of a hand-over: claim `id` holds the lock with `fence` (and `slot`), as of now."""

    id: str
    fence: int
    slot: int = 0


class Held(NamedTuple):
    """A claim that holds the lock.

    Attributes:
        claim: the claim (its id may differ from the first one asked with).
        fence: the fencing token.
        deadline: when its lease ends, on the holder's clock.
        slot: the number among the holders of a semaphore.
    """

    claim: Claim
    fence: int
    deadline: float
    slot: int = 0


Renewed: TypeAlias = int | StoreError
"""What became of one claim in a renewal: GONE, KEPT or WANTED of `core.line`, or why it could not be asked."""


class Tells(Protocol):
    """Wakes a waiting thread or task; from any thread."""

    def tell(self, message: Granted | None = None) -> None:
        """Wake the waiter; a message is kept until it is read."""


class AcquireCall:
    """One call of acquire; `claim` is always the one to take out of the line if the call is broken off.

    `first` is the store's answer if the claim has entered already; `owner` is the calling thread or task, `now` its
    clock.  `entered` is False while no claim of the call can be in the line, so that there is nothing to take out.
    `on_queued` is called with this object each time that its claim begins to wait in line; `queued` is the claim that
    did so last, for that function.  `done` is True if it is a claim of `once` that came too late.
    """

    __slots__ = (
        "claim", "closed", "deadline", "done", "entered", "first", "now", "on_queued", "owner", "queued", "started",
        "wait", "waiter",
    )  # fmt: skip

    def __init__(
        self,
        claim: Claim,
        now: Callable[[], float],
        started: float,
        deadline: float | None,
        wait: bool,
        first: EnterResult | None = None,
        owner: object = None,
    ) -> None:
        self.claim = claim
        self.now = now
        self.started = started
        self.deadline = deadline
        self.wait = wait
        self.first = first
        self.owner = owner
        self.entered = first is not None and first.state not in NOT_IN_LINE
        self.closed = False
        self.done = False
        self.waiter: Any = None
        self.on_queued: Callable[[AcquireCall], object] | None = None
        self.queued: Claim | None = None

    def give_up(self) -> None:
        """Let the call end soon as if its time was over; from any thread."""
        self.deadline = self.started
        if self.waiter is not None:
            self.waiter.tell()

    def call_off(self) -> None:
        """Let the call end with StoreError soon, because its connection is closed; from any thread."""
        self.closed = True  # in this order: a call that subscribes looks at it afterwards
        if self.waiter is not None:
            self.waiter.tell()


NOT_IN_LINE = ("busy", "occupied", "refused", "done")


class AsyncQueue(Protocol):
    """A store as the tasks of one event loop use it: the state machine pending -> using -> gone, for every name."""

    async def enter(self, claim: Claim, waiter: Tells | None, wait: bool, again: bool) -> EnterResult:
        """Ask for the lock, or where the claim stands; idempotent by the claim's id; extends its lease.

        Args:
            claim: the claim.
            waiter: is notified when the claim's turn comes, of `subscribe`; None when the caller has not subscribed.
            wait: False: one try, which leaves nothing behind if it is refused.
            again: True if the claim is known to be in the line: if it is not there, it is gone.
        """

    async def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool:
        """Take the claim out of the line, hand over to the next; True if this call removed it.

        Args:
            claim: the claim.
            done: seconds for which a record is kept that its run was completed; 0 for no record.  With one, True says
                that this request made it; False may also mean that one before it did, which had no answer.
            value: what is kept with the record, in the same step: ASCII text without NUL.
        """

    async def kept(self, key: str) -> str | None:
        """Return the value of the record of a completed run; None if none is kept."""

    async def forget(self, key: str) -> bool:
        """Forget the record of a completed run; True if there was one."""

    async def renew(self, claims: Sequence[Claim]) -> list[Renewed]:
        """Extend leases, many at once.

        Returns:
            For each claim: GONE, KEPT or WANTED; a StoreError, as a value, if this one could not be asked while
            others could.  A store that raises instead says so of all of them.
        """

    async def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None:
        """Let a claim that holds the lock go on as `claim`; None if it is gone.  The caller knows the deadline.

        Args:
            key: of the line.
            id: of the claim until now.
            claim: its id and its lease from now on; with the same id, only the lease is another.
            detached: True if it outlives this process, on stores that notice the death of one.
        """

    async def look(self, key: str) -> list[ClaimView]:
        """List the live claims of `key` in line order; a key without a name means its whole namespace."""

    async def evict(self, key: str, id: str | None) -> int:
        """Remove one claim, or all of a key, of any program; return how many."""

    def subscribe(self) -> Any:
        """Return what the caller can wait on."""

    def abort(self) -> None:
        """Close everything without waiting, since its loop has ended."""


class Queue(Protocol):
    """A store as the threads of one process use it; as `AsyncQueue`."""

    def enter(self, claim: Claim, waiter: Tells | None, wait: bool, again: bool) -> EnterResult: ...

    def leave(self, claim: Claim, done: float = 0.0, value: str = "") -> bool: ...

    def kept(self, key: str) -> str | None: ...

    def forget(self, key: str) -> bool: ...

    def renew(self, claims: Sequence[Claim]) -> list[Renewed]: ...

    def adopt(self, key: str, id: str, claim: Claim, detached: bool = False) -> Held | None: ...

    def look(self, key: str) -> list[ClaimView]: ...

    def evict(self, key: str, id: str | None) -> int: ...

    def subscribe(self) -> Any: ...


Feature: TypeAlias = Literal["slot", "once", "detach", "wanted", "readers", "semaphores"]
ALL: frozenset[Feature] = frozenset({"slot", "once", "detach", "wanted", "readers", "semaphores"})


class Store(Protocol):
    """A place for lines, and how to connect to it.

    Attributes:
        features: what of the contract it can do; for the rest it raises Unsupported.
        frees_at_death: True if the claims of a process end with it, so that nothing need be released at its exit.
        in_process: True if its lines are in the memory of this process.
        now: the clock that leases are counted on by their holders, in seconds.
    """

    @property
    def features(self) -> frozenset[Feature]: ...
    @property
    def frees_at_death(self) -> bool: ...
    @property
    def in_process(self) -> bool: ...
    @property
    def now(self) -> Callable[[], float]: ...

    def queue(self) -> Queue:
        """Return a new queue, for the threads of the calling process."""

    def aqueue(self) -> AsyncQueue:
        """Return a new queue, for the tasks of the running event loop."""
