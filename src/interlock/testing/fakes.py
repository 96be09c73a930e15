"""Locks in memory for tests of programs, with a clock that the test moves, and faults that it orders."""

import asyncio
import threading
from collections import Counter
from typing import Any, Literal, TypeAlias

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.client._async.grants import AsyncGrant
from interlock.client._sync.grants import Grant
from interlock.client.events import Event, subscribe
from interlock.core.claims import SEPARATOR
from interlock.core.errors import InvalidArgument
from interlock.runtime import clock
from interlock.runtime.process import running_loop
from interlock.stores.memory import MemoryNamespace, MemoryStore
from interlock.testing._async.faulty import AsyncFaultyQueue
from interlock.testing._sync.faulty import FaultyQueue
from interlock.testing.faults import Lossy

StepName: TypeAlias = Literal["enter", "leave", "renew", "look", "evict"]
HEARD_WITHIN = 10.0  # seconds to wait until holders have noticed a loss; immediately unless the store is stalled


class FakeLocks:
    """A store in memory for tests; its clock does not move until the test moves it.

    All clients of one `FakeLocks` see each other's claims, of threads and of asyncio tasks.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._space = MemoryNamespace(lambda: self._now)
        self._looker = MemoryStore(self._space).queue()
        self._queues: list[tuple[FaultyQueue | AsyncFaultyQueue, bool]] = []
        """The states of all clients, and True for each of threads."""
        self._locks: list[Locks] = []
        self._drops: Counter[str] = Counter()
        self._stalled_until = 0.0

    def connect(
        self, *, namespace: str = "", ttl: float | None = None, instance: str | None = None, takeover: bool = False
    ) -> Locks:
        """Return a client for threads.

        Args:
            namespace, instance, takeover: as for `interlock.connect`.
            ttl: seconds of lease, by this object's clock.
        """
        made = Locks(_FakeStore(self), namespace=namespace, ttl=ttl, instance=instance, takeover=takeover)
        self._locks.append(made)
        return made

    def aconnect(
        self, *, namespace: str = "", ttl: float | None = None, instance: str | None = None, takeover: bool = False
    ) -> AsyncLocks:
        """Return a client for asyncio tasks; arguments as for `connect`."""
        return AsyncLocks(_FakeStore(self), namespace=namespace, ttl=ttl, instance=instance, takeover=takeover)

    def advance(self, seconds: float) -> None:
        """Move the clock forward: leases expire, waiters get the locks, and the former holders are notified.

        Threads have noticed the loss when this returns; tasks notice it when their event loop runs.

        Args:
            seconds: 0 or more. Renewals follow the real clock, so no lease is renewed during this call.
        """
        if not seconds >= 0:
            raise InvalidArgument(f"a clock is moved on by 0 seconds or more, not {seconds!r}")
        before = self._claims()
        self._now += seconds
        for key in before.values():
            self._looker.evict(key, "")  # evicts no claim, but the step removes expired ones and promotes waiters
        left = self._claims()
        self._report_missing({id: key for id, key in before.items() if id not in left})

    def lose(self, what: Grant | str) -> None:
        """Let the holders of a lock lose it; threads have noticed the loss on return.

        Args:
            what: a grant, or the name of a lock if the test has no access to the grant.

        Raises:
            InvalidArgument: the lock is not held here, or an event loop runs in this thread: use `alose` there.
        """
        if running_loop() is not None:
            raise InvalidArgument(
                "lose() would block this event loop, so a holder in it could not notice. Write `await fake.alose(…)`."
            )
        self._lose(what, of_tasks=False)

    async def alose(self, what: Grant | AsyncGrant | str) -> None:
        """See `lose`, in the thread of an event loop: the body of an `async with` is cancelled."""
        await asyncio.to_thread(self._lose, what, of_tasks=True)

    def drop_reply(self, step: StepName = "enter", times: int = 1) -> None:
        """Lose the store's next replies to a step; the step itself is performed.

        Args:
            step: "enter" (acquire), "leave" (release), "renew", "look" (claims) or "evict".
            times: the number of replies.
        """
        self._drops[step] += times

    def stall(self, seconds: float) -> None:
        """Let the store not reply for some seconds of real time, like a stopped server."""
        self._stalled_until = clock.now() + seconds

    def close(self) -> None:
        """Close the clients of threads, and forget all claims; clients of tasks end with their event loop."""
        self._stalled_until = 0.0
        self._drops.clear()
        for each in self._locks:
            each.close()
        self._space.start_afresh()

    def __enter__(self) -> "FakeLocks":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _claims(self) -> dict[str, str]:
        """Return the keys of all claims, by id."""
        spaces = [namespace + SEPARATOR for namespace in self._looker.namespaces()]
        return {view.id: space + view.name for space in spaces for view in self._looker.look(space)}

    def _holders(self, what: Grant | AsyncGrant | str) -> dict[str, str]:
        """Return the keys of the holders of a lock, by id."""
        found = {
            view.id: key
            for key in self._claims().values()
            for view in self._looker.look(key)
            if view.state == "using" and (view.name == what if isinstance(what, str) else view.id == what.id)
        }
        if not found:
            raise InvalidArgument(f"{what!r} is not held here: it is free, was lost before, or is in another store")
        return found

    def _lose(self, what: Grant | AsyncGrant | str, of_tasks: bool) -> None:
        missing = self._holders(what)
        for id, key in missing.items():
            self._looker.evict(key, id)
        self._report_missing(missing, of_tasks)

    def _report_missing(self, missing: dict[str, str], of_tasks: bool = False) -> None:
        """Let holders notice the loss of their locks; wait for other threads, or also tasks."""
        all_heard = threading.Event()

        def heard(event: Event) -> None:
            if event.kind == "lost" and missing.pop(event.id, None) is not None and not missing:
                all_heard.set()

        stop = subscribe(heard)
        try:
            held_by_threads = self._verify_missing(missing)
            if not of_tasks:
                for id in set(missing) - held_by_threads:
                    missing.pop(id, None)
            if missing:
                all_heard.wait(HEARD_WITHIN)
        finally:
            stop()

    def _verify_missing(self, claims: dict[str, str]) -> set[str]:
        """Let the holders of claims ask the store; return the claims held by threads."""
        return {
            id
            for id in list(claims)
            if [queue.verify(id) and of_threads for queue, of_threads in self._queues].count(True)
        }


class _FakeStore(Lossy):
    """The store of one client: the memory store, with the faults of its `FakeLocks`."""

    def __init__(self, place: FakeLocks) -> None:
        super().__init__(MemoryStore(place._space))
        self._place = place
        self.losses = place._drops
        self.now = clock.now

    def queue(self) -> FaultyQueue:
        queue = super().queue()
        self._place._queues.append((queue, True))
        return queue

    def aqueue(self) -> AsyncFaultyQueue:
        queue = super().aqueue()
        self._place._queues.append((queue, False))
        return queue

    def pause_before(self, step: str, args: Any) -> float | None:
        left = self._place._stalled_until - clock.now()
        return left if left > 0 else None
