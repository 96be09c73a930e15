"""Where a process may have no more threads, an acquire works or says so, and all works once it may."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import interlock
from tests.support.stores import PARTIAL_ROWS, ROWS, Row


class Threads:
    """Whether threads of ours, and those of pools, can be started."""

    allowed = True


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """As many as are wanted, until the test says otherwise."""
    threads, start = Threads(), threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if not threads.allowed and thread.name.startswith(("interlock", "ThreadPool")):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    yield threads
    threads.allowed = True


@pytest.fixture(params=[row for row in [*ROWS, *PARTIAL_ROWS] if row.schemes], ids=lambda row: row.name)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store whose threads no other test has started."""
    row: Row = request.param
    url = row.place(tmp_path).url or "memory://no-threads"
    return f"{url}?max_locks=96" if row in PARTIAL_ROWS else url


def outcome(acquire: Callable[[], Any]) -> Any:
    """Return the grant, None, or the error for which there is none."""
    try:
        return acquire()
    except interlock.LockError as error:
        return error


def test_threads_get_a_lock_or_an_error_and_the_lock_once_there_are_threads(url: str, threads: Threads) -> None:
    with interlock.connect(url) as others:
        held: Any = others.lock("held").acquire()
        threads.allowed = False
        with interlock.connect(url) as locks:
            free = outcome(lambda: locks.lock("free").acquire(timeout=1))
            assert isinstance(free, interlock.StoreError) or free.release() is True
            tried = outcome(lambda: locks.lock("held").acquire(timeout=0.1))
            assert tried is None or isinstance(tried, interlock.StoreError)
            threads.allowed = True
            held.release()
            with locks.lock("held", timeout=20):
                pass
        threads.allowed = False
    assert held.lost is False


def test_tasks_get_a_lock_or_an_error_and_the_lock_once_there_are_threads(url: str, threads: Threads) -> None:
    async def attempt(lock: Any, timeout: float) -> Any:
        try:
            return await lock.acquire(timeout=timeout)
        except interlock.LockError as error:
            return error

    async def main() -> None:
        async with interlock.aconnect(url) as others:
            held: Any = await others.lock("held").acquire()
            threads.allowed = False
            async with interlock.aconnect(url) as locks:
                free = await attempt(locks.lock("free"), 1)
                assert isinstance(free, interlock.StoreError) or await free.release() is True
                tried = await attempt(locks.lock("held"), 0.1)
                assert tried is None or isinstance(tried, interlock.StoreError)
                threads.allowed = True
                await held.release()
                async with locks.lock("held", timeout=20):
                    pass
            assert held.lost is False

    asyncio.run(main())
