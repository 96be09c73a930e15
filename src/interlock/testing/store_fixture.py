"""The environment of one contract test: a store, actors of one API, and a client that looks from outside."""

import asyncio
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import wraps
from itertools import count
from types import coroutine
from typing import Any, TypeVar

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.core.claims import PENDING, SEPARATOR, USING, Claim, ClaimView, LockSpec
from interlock.runtime.process import fresh_id
from interlock.storekit.store import Store
from interlock.testing.actors import Actor, Background, Gate, Keeper, TaskActor, TaskGate, ThreadActor, ThreadGate
from interlock.testing.waiting import WAIT_LIMIT, eventually

F = TypeVar("F", bound=Store)
THREADS, TASKS = "threads", "tasks"


@dataclass(frozen=True)
class StoreFixture:
    """The storage of a store, empty when the test begins.

    Attributes:
        open: returns a new store on this storage; all of them see the same lines.
        url: the URL by which other processes connect; None if they can't.
        frees_at_death: True if the locks of a killed process are released immediately, not at their leases' end.
        open_for_tasks: as `open`, for asyncio tasks; None if one store works for both APIs.
        clock_error: seconds by which the store's clock may differ from this machine's.
    """

    open: Callable[[], Store]
    url: str | None = None
    frees_at_death: bool = False
    open_for_tasks: Callable[[], Store] | None = None
    clock_error: float = 0.1


@dataclass(frozen=True)
class LockKind:
    """A kind of lock, as the contract's tests use it.

    Attributes:
        name: the name of the kind.
        factory: the method of `Locks` that makes it.
        make: a function (locks, name, **options) that returns a lock of this kind.
        rival: the same, for a lock that excludes it.
        shares: True if two locks of `make` can be held at the same time.
    """

    name: str
    factory: str
    make: Callable[..., Any]
    rival: Callable[..., Any]
    shares: bool = False


def _exclusive(locks: Any, name: str, **how: Any) -> Any:
    return locks.lock(name, **how)


KINDS = [
    LockKind("exclusive", "lock", _exclusive, _exclusive),
    LockKind("re-entrant", "rlock", lambda locks, name, **how: locks.rlock(name, **how), _exclusive),
    LockKind(
        "reader", "rwlock",
        lambda locks, name, **how: locks.rwlock(name, **how).read(),
        lambda locks, name, **how: locks.rwlock(name, **how).write(),
        shares=True,
    ),
    LockKind(
        "writer", "rwlock",
        lambda locks, name, **how: locks.rwlock(name, **how).write(),
        lambda locks, name, **how: locks.rwlock(name, **how).read(),
    ),
    LockKind(
        "semaphore", "semaphore",
        lambda locks, name, **how: locks.semaphore(name, 3, **how),
        lambda locks, name, **how: locks.semaphore(name, 3, units=3, **how),
        shares=True,
    ),
    LockKind(
        "semaphore, all permits", "semaphore",
        lambda locks, name, **how: locks.semaphore(name, 3, units=3, **how),
        lambda locks, name, **how: locks.semaphore(name, 3, **how),
    ),
]  # fmt: skip
"""The table of the kinds of locks of one name; `all` has its own module of tests."""


class ContractWorld:
    """The environment of a contract test.

    Args:
        place: the storage of the locks.
        sync_or_async: "threads" or "tasks", the kind of actors.
    """

    def __init__(self, place: StoreFixture, sync_or_async: str) -> None:
        self.place = place
        self.sync_or_async = sync_or_async
        self.name = f"lock {fresh_id()}"
        self._numbers = count(1)
        self._keep = Keeper()
        self._background = Background() if sync_or_async == TASKS else None
        self._actors: list[Actor] = []
        self._open: list[Any] = []
        self._eye: Locks | None = None

    def fresh_name(self) -> str:
        """Return an unused name."""
        return f"{self.name} {next(self._numbers)}"

    def connect(self, around: Callable[[Store], Store] | None = None, **how: Any) -> Any:
        """Return a new client: `Locks` for threads, `AsyncLocks` for tasks.

        Args:
            around: wraps the store, for example in one that loses replies.
            how: namespace, ttl, instance and takeover, as for `connect`.
        """
        return self.connect_with(around or (lambda store: store), **how)[0]

    def connect_with(self, fault: Callable[[Store], F], **how: Any) -> tuple[Any, F]:
        """Return a new client on a faulty store around the real one, and the faulty store."""
        opener = self.place.open if self._background is None else self.place.open_for_tasks or self.place.open
        faulty = fault(opener())
        locks = Locks(faulty, **how) if self._background is None else AsyncLocks(faulty, **how)
        self._open.append(locks)
        return locks, faulty

    def stale_claim(self, spec: LockSpec, store: Store | None = None, who: str = "a ghost") -> str:
        """Enter a claim that is never renewed or released, like that of a dead process; return its id.

        Args:
            spec: the lock, with a key without a namespace.
            store: the store to use; None for a new one.
            who: the name of its thread, after the mark of its instance.
        """
        claim = Claim(fresh_id(), spec, who)
        queue = self.eye._client.state().queue if store is None else store.queue()
        queue.enter(claim, queue.subscribe(), True, False)
        return claim.id

    def actor(self) -> Actor:
        """Return a new thread or task."""
        actor = ThreadActor() if self._background is None else TaskActor(self._background.loop)
        self._actors.append(actor)
        return actor

    def actors(self, number: int) -> list[Actor]:
        """Return several new threads or tasks."""
        return [self.actor() for _ in range(number)]

    def gate(self) -> Gate:
        """Return a closed gate for the actors."""
        return ThreadGate() if self._background is None else TaskGate(self._background.loop)

    def function(self, steps: Callable[..., Generator[Any, Any, Any]]) -> Callable[..., Any]:
        """Return a function for the actors: a plain one for threads, a coroutine function for tasks.

        Args:
            steps: a generator function, which writes `yield from world.result(call())` where a task awaits the call.
        """

        @wraps(steps)
        def thread(*args: Any) -> Any:
            try:
                next(steps(*args))
            except StopIteration as end:
                return end.value
            raise AssertionError("a thread awaits nothing")

        @wraps(steps)
        async def task(*args: Any) -> Any:
            return await coroutine(steps)(*args)

        return thread if self._background is None else task

    def result(self, answer: Any) -> Generator[Any, Any, Any]:
        """Return the result of a call, which a task has to await."""
        if self._background is not None:
            answer = yield from answer.__await__()
        return answer

    def pause(self, seconds: float = 0) -> Any:
        """Let other threads or tasks run."""
        return time.sleep(seconds) if self._background is None else asyncio.sleep(seconds)

    def careless_increment(self, box: list[int]) -> Any:
        """Add 1 to `box[0]`; two overlapping calls lose an update."""

        def steps() -> Generator[Any, Any, None]:
            seen = box[0]
            yield from self.result(self.pause())
            box[0] = seen + 1

        return self.function(steps)()

    def run(self, work: Any) -> Any:
        """Run a coroutine on the event loop of the actors; only in a world of tasks."""
        assert self._background is not None, "a world of threads runs no coroutines"
        return self._keep(self._background.run(work))

    # -- seen from outside ------------------------------------------------------------------------------

    @property
    def eye(self) -> Locks:
        """A separate client for the test itself, to look and to evict."""
        if self._eye is None:
            self._eye = Locks(self.place.open())
        return self._eye

    def holders(self, name: str | None = None) -> list[ClaimView]:
        """Return the claims that hold the lock."""
        return [view for view in self.eye.claims(name or self.name) if view.state == USING]

    def waiters(self, name: str | None = None) -> list[ClaimView]:
        """Return the claims that wait for the lock."""
        return [view for view in self.eye.claims(name or self.name) if view.state == PENDING]

    def until_waiting(self, number: int, name: str | None = None) -> None:
        """Wait until `number` claims wait for the lock."""
        eventually(lambda: len(self.waiters(name)) == number)

    def in_line(self, start: Callable[..., "Future[Any]"], *args: Any, **how: Any) -> "Future[Any]":
        """Start a call that has to wait for the lock, and return when its claim is in the line.

        Args:
            start: `start` or `start_within` of an actor; its arguments follow.
        """
        before = len(self.waiters())
        waiting = start(*args, **how)
        self.until_waiting(before + 1)
        return waiting

    def until_free(self, name: str | None = None, within: float = WAIT_LIMIT) -> None:
        """Wait a limited time until the lock has no holder and no waiter."""
        eventually(lambda: self.nothing_left(name), within)

    def nothing_left(self, name: str | None = None) -> bool:
        """Return True if the lock has no holder and no waiter now."""
        return not self.eye.claims(name or self.name)

    def key(self, name: str | None = None) -> str:
        """Return the store's key of a name without a namespace."""
        return SEPARATOR + (name or self.name)

    # -- the end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the actors and close all clients."""
        try:
            for actor in self._actors:
                actor.end()
            for locks in self._open:
                if self._background is None:
                    locks.close()
                else:
                    self._background.run(locks.close())
            if self._eye is not None:
                self._eye.close()
        finally:
            if self._background is not None:
                self._background.close()
