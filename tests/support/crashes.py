"""A server that is killed repeatedly under load: the times at which each holder had the lock, by its own clock."""

import itertools
import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import interlock
from interlock.testing.waiting import eventually

SHORT = 0.001  # seconds


def crashes(few: int) -> int:
    """Return how often to kill a server: `few`, unless `INTERLOCK_TEST_CRASHES` is set."""
    return int(os.environ.get("INTERLOCK_TEST_CRASHES", few))


class Load:
    """Threads that take one lock repeatedly.

    Args:
        ttl: seconds of their leases.
        longest: seconds for which some of them hold it, so that a crash happens meanwhile.
    """

    def __init__(self, ttl: float, longest: float) -> None:
        self._ttl = ttl
        self._longest = longest
        self._ended = threading.Event()
        self._held: list[tuple[float, float, int]] = []
        self._long: float | None = None  # since when a thread holds it for longer

    def survive(self, connections: list[Any], crash: Callable[[], object], times: int) -> None:
        """Let two threads of each client work while the server crashes so often.

        Raises:
            AssertionError: two threads held the lock at a time, a fence did not grow, or no thread got it any more.
        """
        with ThreadPoolExecutor() as pool:
            workers = [pool.submit(self._work, locks) for locks in connections for _ in range(2)]
            try:
                for _ in range(times):
                    known = len(self._held)
                    eventually(lambda known=known: len(self._held) > known + 3 and self._is_held_long(), 60)  # type: ignore[misc]
                    crash()
                known = len(self._held)  # a server that has lost claims grants nothing during the grace
                eventually(lambda: len(self._held) > known + 3, 60)
            finally:
                self._ended.set()
            for worker in workers:
                worker.result(60)
        by_time = sorted(self._held)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(by_time)), "two held it"
        fences = [fence for _, _, fence in by_time]
        assert fences == sorted(set(fences))

    def _is_held_long(self) -> bool:
        since = self._long
        return since is not None and time.monotonic() < since + self._longest / 4

    def _work(self, locks: Any) -> None:
        lock = locks.lock("a", ttl=self._ttl)
        while not self._ended.is_set():
            try:
                grant = lock.acquire(timeout=2)
                if grant is not None:
                    self._hold(grant)
                    grant.release()
            except interlock.LockError:
                pass

    def _hold(self, grant: Any) -> None:
        """Record the time of a grant: from its beginning until the last check at which it was held."""
        began = last = time.monotonic()
        seconds = random.choice((SHORT, SHORT, self._longest))
        self._long = began if seconds == self._longest else None
        while last < began + seconds and not grant.lost:
            time.sleep(SHORT)
            now = time.monotonic()  # before the check: the grant may be lost in between
            last = now if not grant.lost else last
        self._held.append((began, last, grant.fence))
