"""Locks on Redis from other libraries, each opened at a place whose facts tell the server's URL.

They keep their default settings, except that none may give up waiting and that all have the same lease.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from bench.contestants import needs
from bench.contestants.locks import NO_LIMIT, AsyncLock, Lock
from bench.contestants.redis_locks import TUNED, client, redis_py_own
from bench.contestants.redis_raw import key_of, ttl_of
from bench.model import Contestant, Place, Unavailable

T = TypeVar("T")

SHORT = 5.0  # seconds of lease below which a peer that can renew does
APART = "INTERLOCK_BENCH_APART"
"""Names a folder of packages that can't be installed beside the others."""


def python_redis_lock(place: Place) -> Callable[[], Lock]:
    """python-redis-lock; waits in BLPOP."""
    import redis_lock  # type: ignore[import-untyped, unused-ignore]

    shared, ttl = client(place), ttl_of(place)
    return lambda: redis_lock.Lock(shared, key_of(place), expire=max(1, round(ttl)), auto_renewal=ttl < SHORT)


def sherlock(place: Place) -> Callable[[], Lock]:
    """sherlock's RedisLock; looks every 100 ms."""
    from sherlock.lock import RedisLock  # type: ignore[import-untyped, unused-ignore]

    shared, ttl = client(place), max(1, round(ttl_of(place)))
    return lambda: RedisLock(key_of(place), client=shared, expire=ttl, timeout=NO_LIMIT)


def pottery(place: Place) -> Callable[[], Lock]:
    """pottery's Redlock on one server; looks every 0 to 200 ms."""
    from pottery import Redlock  # type: ignore[import-untyped, unused-ignore]

    shared = client(place)
    return lambda: Redlock(key=key_of(place), masters={shared}, auto_release_time=ttl_of(place))


def portalocker(place: Place) -> Callable[[], Lock]:
    """portalocker's RedisLock, which has no lease: a subscription is the lock. Looks every 250 ms."""
    from portalocker import RedisLock

    shared = client(place, decode_responses=True, health_check_interval=10)
    return lambda: RedisLock(key_of(place), shared, timeout=NO_LIMIT, interrupt_on_lost=False)


class Coredis:
    """coredis' Lock; looks every 100 ms. Its client lives in a task of its own, as coredis demands."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock: asyncio.Future[Any] | None = None

    async def acquire(self) -> None:
        """Wait for the lock; the first call connects."""
        if self._lock is None:
            self._lock = asyncio.get_running_loop().create_future()
            self._keeper = asyncio.create_task(self._keep(self._lock))
        await (await self._lock).acquire()

    async def release(self) -> None:
        """Give it back."""
        assert self._lock is not None
        await self._lock.result().release()

    async def _keep(self, lock: asyncio.Future[Any]) -> None:
        import coredis
        from coredis.patterns.lock import Lock as TheirLock

        async with coredis.Redis.from_url(self._place.facts["url"]) as shared:
            lock.set_result(TheirLock(shared, key_of(self._place), timeout=ttl_of(self._place)))
            await asyncio.Event().wait()


class RedisFifoLock:
    """redis-fifo-lock's FifoLock, strictly first come, first served; woken by a list of each waiter."""

    def __init__(self, place: Place) -> None:
        from redis.asyncio import Redis
        from redis_fifo_lock import FifoLock  # type: ignore[import-untyped, import-not-found, unused-ignore]

        ttl = round(1000 * ttl_of(place))
        self._lock: Any = FifoLock(Redis.from_url(place.facts["url"]), key_of(place), lease_ms=ttl)
        self._lease: Any = None

    async def acquire(self) -> None:
        """Wait for the lock."""
        self._lease = await self._lock.acquire()

    async def release(self) -> None:
        """Give it back."""
        await self._lock.release(self._lease)


class XtrLock:
    """xtr-lock's lock on its RedisStore; looks again and again."""

    def __init__(self, place: Place) -> None:
        from redis.asyncio import Redis
        from xtr_lock import LockFactory, RedisStore

        factory = LockFactory(RedisStore(Redis.from_url(place.facts["url"])))
        self._lock = factory.create_lock(key_of(place), ttl=ttl_of(place))

    async def acquire(self) -> None:
        """Wait for the lock."""
        await self._lock.acquire(blocking=True)

    async def release(self) -> None:
        """Give it back."""
        await self._lock.release()


class AsyncPeer(NamedTuple):
    """A library's lock for tasks.

    Attributes:
        name: as in the report.
        opener: makes it, inside a running loop.
        needs: raises `Unavailable` if it is not installed.
        waits: how it waits.
        poll: seconds between two looks, 0 if it is woken.
    """

    name: str
    opener: Callable[[Place], AsyncLock]
    needs: Callable[[], None]
    waits: str
    poll: float = 0.0


class Mithril:
    """mithril's Lock, each object good for one use; waits in BLPOP. It renews if the lease is short."""

    def __init__(self, backend: Any, place: Place) -> None:
        self._backend, self._key, self._ttl = backend, key_of(place), ttl_of(place)
        self._lock: Any = None

    def acquire(self) -> None:
        """Wait for the lock."""
        from mithril import Lock as TheirLock  # type: ignore[import-not-found, unused-ignore]

        lock = TheirLock(
            self._key, backend=self._backend, ttl=self._ttl, timeout=NO_LIMIT, auto_renewal=self._ttl < SHORT
        )
        lock.acquire()
        self._lock = lock

    def release(self) -> None:
        """Give it back."""
        self._lock.release()


def mithril(place: Place) -> Callable[[], Lock]:
    """mithril's Lock, with the redis-py that it needs, and without its lines in the log."""
    sys.path.insert(0, os.environ[APART])
    import structlog  # type: ignore[import-not-found, unused-ignore]
    from mithril.backends import RedisBackend  # type: ignore[import-not-found, unused-ignore]

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    backend = RedisBackend(client(place))
    return lambda: Mithril(backend, place)


def mithril_apart() -> None:
    """Ask for mithril-locks in a folder of its own."""
    folder = os.environ.get(APART)
    if folder is None or not (Path(folder) / "mithril").is_dir():
        raise Unavailable(f"it needs redis<8; pip install --target DIR mithril-locks, and set {APART}=DIR")


Opener = Callable[[Place], Callable[[], Lock]]
"""Connects, and then gives each thread a lock object of its own."""


class Peer(NamedTuple):
    """A library's lock that blocks.

    Attributes:
        name: as in the report.
        opener: how to get it.
        needs: raises `Unavailable` if it is not installed.
        waits: how it waits.
        poll: seconds between two looks, 0 if it is woken.
    """

    name: str
    opener: Opener
    needs: Callable[[], None]
    waits: str
    poll: float = 0.0


REDIS_PY, PYTHON_REDIS_LOCK = "redis-py", "python-redis-lock"
PEERS = (
    Peer(REDIS_PY, redis_py_own(), needs.redis, "looks every 100 ms", 0.1),
    Peer("redis-py, tuned", redis_py_own(TUNED), needs.redis, "looks every 1 ms", TUNED),
    Peer(PYTHON_REDIS_LOCK, python_redis_lock, needs.module("redis_lock", "Lock", PYTHON_REDIS_LOCK), "BLPOP"),
    Peer("sherlock", sherlock, needs.module("sherlock"), "looks every 100 ms", 0.1),
    Peer("pottery", pottery, needs.module("pottery"), "Redlock on one server; looks every 0 to 200 ms", 0.2),
    Peer("portalocker", portalocker, needs.module("portalocker", "RedisLock"), "looks every 250 ms", 0.25),
    Peer("mithril-locks", mithril, mithril_apart, "BLPOP; with redis-py 7"),
)
ASYNC_PEERS = (
    AsyncPeer("coredis", Coredis, needs.module("coredis"), "looks every 100 ms", 0.1),
    AsyncPeer("redis-fifo-lock", RedisFifoLock, needs.module("redis_fifo_lock", "FifoLock"), "strict order, BLPOP"),
    AsyncPeer("xtr-lock", XtrLock, needs.module("xtr_lock", "LockFactory"), "looks again"),
)


def one(opener: Opener) -> Callable[[Place], Lock]:
    """Only one lock object."""
    return lambda place: opener(place)()


def contestants(shape: Callable[[Opener], Callable[[Place], T]], *without: str) -> tuple[Contestant[T], ...]:
    """All peers, in the shape that a scenario takes them.

    Args:
        shape: makes it of an opener.
        without: names of those that can't take part.
    """
    return tuple(
        Contestant(peer.name, shape(peer.opener), peer.needs, notes=peer.waits, poll=peer.poll)
        for peer in PEERS
        if peer.name not in without
    )
