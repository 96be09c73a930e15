"""Locks on Redis, ours and redis-py's, each opened at a place whose facts tell the server's URL."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from bench.contestants.locks import AsyncLock, Lock
from bench.contestants.redis_raw import key_of, ttl_of
from bench.model import Place

TUNED = 0.001  # seconds between two looks of a peer that polls, when it is made to poll as fast as is sensible

Call = tuple[str, "Future[object]"]
"""The name of a method, and where its answer is waited for."""


def interlock_redis(place: Place) -> Any:
    """interlock on a server."""
    return interlock_redis_own(place)()


def interlock_redis_own(place: Place) -> Callable[[], Any]:
    """interlock on a server; each thread has a lock object of its own from one connection."""
    import interlock

    locks = place.closing.enter_context(interlock.connect(place.facts["url"], ttl=ttl_of(place)))
    return lambda: locks.lock(key_of(place))


def interlock_redis_async(place: Place) -> Any:
    """interlock on a server, asyncio; call it inside a running loop."""
    import interlock

    return interlock.aconnect(place.facts["url"], ttl=ttl_of(place)).lock(key_of(place))


def client(place: Place, **options: Any) -> Any:
    """A client of redis-py with a pool of its own."""
    import redis

    found = redis.Redis.from_url(place.facts["url"], **options)
    place.closing.callback(found.close)
    return found


def redis_py(sleep: float = 0.1) -> Callable[[Place], Lock]:
    """redis-py's Lock; waits without a limit, looks every `sleep` seconds."""
    return lambda place: redis_py_own(sleep)(place)()


def redis_py_own(sleep: float = 0.1) -> Callable[[Place], Callable[[], Lock]]:
    """redis-py's Lock; each thread has a lock object of its own from one client."""

    def opener(place: Place) -> Callable[[], Lock]:
        shared = client(place)
        return lambda: shared.lock(key_of(place), timeout=ttl_of(place), sleep=sleep)

    return opener


def redis_py_async(sleep: float = 0.1) -> Callable[[Place], Any]:
    """redis.asyncio's Lock; looks every `sleep` seconds."""

    def make(place: Place) -> Any:
        import redis.asyncio

        shared = redis.asyncio.Redis.from_url(place.facts["url"])
        return shared.lock(key_of(place), timeout=ttl_of(place), sleep=sleep)

    return make


def without_hiredis(make: Callable[[Place], Any]) -> Callable[[Place], Any]:
    """The same where hiredis is not installed."""

    def build(place: Place) -> Any:
        sys.modules["hiredis"] = None  # type: ignore[assignment]  # importing it now fails, in this worker only
        return make(place)

    return build


class InLoop:
    """A lock of tasks, used by one thread: one task of a loop in another thread does what is asked."""

    def __init__(self, make: Callable[[Place], AsyncLock], place: Place) -> None:
        self._make, self._place = make, place
        self._calls: asyncio.Queue[Call | None] = asyncio.Queue()
        self._serving: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        self._loop = self._serving.result()

    async def _serve(self) -> None:
        try:
            lock = self._make(self._place)
        except BaseException as error:
            self._serving.set_exception(error)
            raise
        self._serving.set_result(asyncio.get_running_loop())
        while call := await self._calls.get():
            method, answer = call
            try:
                answer.set_result(await getattr(lock, method)())
            except Exception as error:
                answer.set_exception(error)
        shared = getattr(lock, "redis", None)  # the client of redis.asyncio's Lock
        if shared is not None:
            await shared.aclose()

    def _call(self, method: str) -> object:
        answer: Future[object] = Future()
        self._loop.call_soon_threadsafe(self._calls.put_nowait, (method, answer))
        return answer.result()

    def acquire(self) -> object:
        """Wait for the lock."""
        return self._call("acquire")

    def release(self) -> object:
        """Give it back."""
        return self._call("release")

    def close(self) -> None:
        """End the loop."""
        self._loop.call_soon_threadsafe(self._calls.put_nowait, None)
        self._thread.join()


def in_loop(make: Callable[[Place], AsyncLock]) -> Callable[[Place], Lock]:
    """Use a lock of tasks where a blocking one is asked for; each call costs two switches of threads."""

    def build(place: Place) -> Lock:
        lock = InLoop(make, place)
        place.closing.callback(lock.close)
        return lock

    return build
