"""What a store is: a Queue, with wake-ups, checks and an end, for threads, for asyncio tasks, or for both."""

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias
from urllib.parse import SplitResult

from interlock.core.claims import Check, Claim, LockSpec
from interlock.core.effects import Op, TaskWakeup, ThreadWakeup
from interlock.core.oldqueue import EnterResult, Queue

EnterNow: TypeAlias = Callable[[Claim, Any, bool, bool], EnterResult]
"""`enter` as a plain call."""
LeaveNow: TypeAlias = Callable[[Claim], bool | None]
"""`leave` of a claim that holds the lock as a plain call; None: the store is busy, and `leave` is to be performed."""
AsyncEnterNow: TypeAlias = Callable[[Claim, bool], EnterResult | Awaitable[EnterResult]]
"""The first `enter` of a claim, with `wait`: its result, or what to await for it."""
AsyncLeaveNow: TypeAlias = Callable[[Claim], bool | Awaitable[bool]]
"""`leave` of a claim that holds the lock: its result, or what to await for it."""


def _nobody_asks(id: str) -> None:
    """Do nothing with a doubt: no connection renews the claims of this store."""


class BaseStore:
    """What every store inherits: the answers of one that has nothing special.

    Attributes:
        frees_at_death: True if the claims of a process end with it, so that nothing need be released at its exit.
        enter_now, leave_now: the fast path: steps that are short calls in this process, without a generator.
        aenter_now, aleave_now: the fast path of a store for tasks, whose steps are awaited.
        node_of: tells, quickly and without failing, which of several servers keeps a claim: what is on different
            servers is renewed side by side.
        adoctor: as `doctor`, awaited; None: `doctor` is called in another thread, so that it does not block the loop.
        namespaces: the namespaces in which somebody holds a lock or waits; None: this store can't tell.
        lock_in_transaction: returns what takes a lock in a transaction of the caller, which releases it.
        doubt: set by the connection; the store calls it with the id of a claim that it may not have any more, whose
            holder then asks at once.
    """

    frees_at_death: bool = False
    enter_now: EnterNow | None = None
    leave_now: LeaveNow | None = None
    aenter_now: AsyncEnterNow | None = None
    aleave_now: AsyncLeaveNow | None = None
    node_of: Callable[[Claim], object] | None = None
    adoctor: Callable[[], Awaitable[list[Check]]] | None = None
    namespaces: Callable[[], Op[list[str]]] | None = None
    lock_in_transaction: Callable[[LockSpec, float | None, Any], Any] | None = None
    doubt: Callable[[str], object] = staticmethod(_nobody_asks)

    @classmethod
    def from_url(cls, url: SplitResult) -> Any:
        """Connect to the store that a URL names, for threads; and for tasks, unless the next one says otherwise."""
        raise NotImplementedError

    @classmethod
    def from_url_for_tasks(cls, url: SplitResult) -> Any:
        """Connect to the store that a URL names, for asyncio tasks."""
        return cls.from_url(url)

    def rest(self) -> None:
        """Give up what can be had again; called when nothing was held for a while."""

    def close(self) -> None:
        """Give up everything that the store keeps open; safe to repeat."""

    def doctor(self) -> list[Check]:
        """Find out whether this store keeps the promises that the protocol needs."""
        return []

    async def leave_loop(self) -> None:
        """Give up what belongs to the running loop, which ends without `close()`."""

    async def aclose(self) -> None:
        """As `close`, for tasks."""
        self.close()


class Common(Queue, Protocol):
    """What stores of both colours have; `BaseStore` says what each is."""

    @property
    def frees_at_death(self) -> bool:
        """As in `BaseStore`."""

    @property
    def node_of(self) -> Callable[[Claim], object] | None:
        """As in `BaseStore`."""

    doubt: Callable[[str], object]

    @property
    def enter_now(self) -> EnterNow | None:
        """As in `BaseStore`."""

    @property
    def leave_now(self) -> LeaveNow | None:
        """As in `BaseStore`."""

    @property
    def namespaces(self) -> Callable[[], Op[list[str]]] | None:
        """As in `BaseStore`."""

    @property
    def lock_in_transaction(self) -> Callable[[LockSpec, float | None, Any], Any] | None:
        """As in `BaseStore`."""

    def doctor(self) -> list[Check]:
        """Find out whether this store keeps the promises that the protocol needs."""

    def close(self) -> None:
        """Give up everything that the store keeps open; safe to repeat."""


class SyncStore(Common, Protocol):
    """A store for threads."""

    def thread_wakeup(self) -> ThreadWakeup:
        """Return a wake-up for the calling thread."""

    def rest(self) -> None:
        """As `BaseStore.rest`."""


class AsyncStore(Common, Protocol):
    """A store for asyncio tasks."""

    @property
    def aenter_now(self) -> AsyncEnterNow | None:
        """As in `BaseStore`."""

    @property
    def aleave_now(self) -> AsyncLeaveNow | None:
        """As in `BaseStore`."""

    @property
    def adoctor(self) -> Callable[[], Awaitable[list[Check]]] | None:
        """As in `BaseStore`."""

    def task_wakeup(self) -> TaskWakeup:
        """Return a wake-up for the calling task."""

    async def leave_loop(self) -> None:
        """As `BaseStore.leave_loop`."""

    async def aclose(self) -> None:
        """As `BaseStore.aclose`."""


class Store(SyncStore, AsyncStore, Protocol):
    """A store for both; one of a single colour refuses the wake-ups of the other."""
