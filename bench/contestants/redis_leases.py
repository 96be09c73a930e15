"""Holders of many locks on Redis, which are 10 ms away: ours, and redis-py's, which asks once for each key."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from bench.model import Place

AT_ONCE = 64  # acquires at the same time, so that the start does not take long


class Holder(Protocol):
    """Holds many locks and renews their leases."""

    def hold(self, names: Sequence[str], ttl: float, on_lost: Callable[[str], None]) -> None:
        """Acquire all.

        Args:
            names: of the locks.
            ttl: seconds of lease.
            on_lost: called with the name of a lock that was lost.
        """

    def start(self) -> None:
        """Count from now on."""

    def held(self) -> int:
        """Return how many are held."""

    def deadlines(self) -> dict[str, float]:
        """Return when the lease of each ends or ended, monotonic."""

    def rate(self) -> float:
        """Return how many leases were renewed per second in which renewals were under way."""

    def close(self) -> None:
        """End it; the leases end by themselves."""


class Counted:
    """Counts what a store renews, and the time that it takes.

    Args:
        store: whose `renew` is counted from here on.
    """

    def __init__(self, store: Any) -> None:
        self._renew, store.renew = store.renew, self.renew
        self._changing = threading.Lock()
        self._active = 0
        self.start()

    def start(self) -> None:
        """Begin with nothing."""
        with self._changing:
            self._renewed, self._busy, self._since = 0, 0.0, time.monotonic()

    def renew(self, claims: Sequence[Any]) -> Any:
        """As `Queue.renew`."""
        with self._changing:
            self._active += 1
            if self._active == 1:
                self._since = time.monotonic()
        answers: list[Any] = []
        try:
            answers = yield from self._renew(claims)
        finally:
            with self._changing:
                self._renewed += sum(answer is True for answer in answers)
                self._active -= 1
                if self._active == 0:
                    self._busy += time.monotonic() - self._since
        return answers

    def rate(self) -> float:
        """As `Holder.rate`."""
        return self._renewed / self._busy if self._busy else 0.0


class Threads:
    """interlock, threads."""

    def __init__(self, place: Place, url: str) -> None:
        import interlock

        self._locks = interlock.connect(place.facts[url])
        self._counted = Counted(self._locks.store)
        self.start, self.rate = self._counted.start, self._counted.rate

    def hold(self, names: Sequence[str], ttl: float, on_lost: Callable[[str], None]) -> None:
        """As `Holder.hold`."""
        locks = [self._locks.lock(name, ttl=ttl, on_lost=lambda grant: on_lost(grant.name)) for name in names]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            self._grants = [grant for grant in pool.map(lambda lock: lock.acquire(), locks) if grant is not None]

    def held(self) -> int:
        """As `Holder.held`."""
        return sum(grant.held for grant in self._grants)

    def deadlines(self) -> dict[str, float]:
        """As `Holder.deadlines`."""
        return {grant.name: grant._deadline for grant in self._grants}

    def close(self) -> None:
        """As `Holder.close`."""
        for grant in self._grants:
            self._locks._session.watchdog.remove(grant)
            grant._lose("the measurement is over")


class Tasks:
    """interlock, asyncio."""

    def __init__(self, place: Place, url: str) -> None:
        import interlock

        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._locks = self._run(_made(lambda: interlock.aconnect(place.facts[url])))
        self._counted = Counted(self._locks.store)
        self.start, self.rate = self._counted.start, self._counted.rate

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def hold(self, names: Sequence[str], ttl: float, on_lost: Callable[[str], None]) -> None:
        """As `Holder.hold`."""
        self._grants = self._run(self._acquire(names, ttl, on_lost))

    async def _acquire(self, names: Sequence[str], ttl: float, on_lost: Callable[[str], None]) -> list[Any]:
        locks = [self._locks.lock(name, ttl=ttl, on_lost=lambda grant: on_lost(grant.name)) for name in names]
        grants: list[Any] = []
        for start in range(0, len(locks), AT_ONCE):
            grants += await asyncio.gather(*[lock.acquire() for lock in locks[start : start + AT_ONCE]])
        return grants

    def held(self) -> int:
        """As `Holder.held`."""
        return sum(grant.held for grant in self._grants)

    def deadlines(self) -> dict[str, float]:
        """As `Holder.deadlines`."""
        return {grant.name: grant._deadline for grant in self._grants}

    def close(self) -> None:
        """As `Holder.close`."""
        self._run(_made(self._forget))

    def _forget(self) -> None:
        for grant in self._grants:
            grant._watchdog.remove(grant)
            grant._lose("the measurement is over")


class RedisPy:
    """redis-py: one thread that extends one key after the other, each by its Lock's own script."""

    def __init__(self, place: Place, url: str) -> None:
        import redis

        address = place.facts[url]
        kind = redis.RedisCluster if "+cluster" in address else redis.Redis
        self._client = kind.from_url(address.replace("+cluster", ""))
        self._renewed, self._since, self._ends = 0, 0.0, False

    def hold(self, names: Sequence[str], ttl: float, on_lost: Callable[[str], None]) -> None:
        """As `Holder.hold`."""
        self._ttl = ttl
        self._until: dict[str, float] = {}
        self._locks: list[Any] = []
        self._thread = threading.Thread(target=self._extend, daemon=True)
        self._thread.start()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._acquire, names))

    def _acquire(self, name: str) -> None:
        lock = self._client.lock(name, timeout=self._ttl, thread_local=False)
        self._until[name] = time.monotonic() + self._ttl
        lock.acquire()
        self._locks.append(lock)

    def _extended(self, lock: Any) -> bool:
        from redis.exceptions import LockError

        try:
            lock.reacquire()
        except LockError:
            return False
        return True

    def _extend(self) -> None:
        while not self._ends:
            time.sleep(0.001)
            for lock in list(self._locks):
                sent = time.monotonic()
                if self._ends:
                    return
                if self._until[lock.name] > sent and self._extended(lock):
                    self._until[lock.name] = sent + self._ttl
                    self._renewed += 1

    def start(self) -> None:
        """As `Holder.start`."""
        self._renewed, self._since = 0, time.monotonic()

    def held(self) -> int:
        """As `Holder.held`."""
        now = time.monotonic()
        return sum(until > now for until in self._until.values())

    def deadlines(self) -> dict[str, float]:
        """As `Holder.deadlines`."""
        return dict(self._until)

    def rate(self) -> float:
        """As `Holder.rate`."""
        return self._renewed / (time.monotonic() - self._since)

    def close(self) -> None:
        """As `Holder.close`."""
        self._ends = True
        self._thread.join()
        self._client.close()


async def _made(make: Callable[[], Any]) -> Any:
    return make()
