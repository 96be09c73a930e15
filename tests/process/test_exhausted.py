"""Without room for more threads or open files, an acquire works or reports it; later everything works again."""

import asyncio
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from tests.support.stores import PARTIAL_ROWS, ROWS, Row

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows a process its open files")


class Threads:
    """Whether threads of ours, and those of pools, can be started."""

    allowed = True


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """Allows all threads until the test forbids them."""
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
    """The URL of a store whose threads no other test has started."""
    row: Row = request.param
    return row.place(tmp_path).url or "memory://no-threads"


def outcome(acquire: Callable[[], Any]) -> Any:
    """Return the grant, None, or the error that was raised."""
    try:
        return acquire()
    except interlock.LockError as error:
        return error


async def attempt(call: Awaitable[Any]) -> Any:
    """The same as `outcome`, for a coroutine."""
    try:
        return await call
    except interlock.LockError as error:
        return error


ONCE = """
import asyncio, threading
from interlock.runtime._aio import offload
done, start = [], threading.Thread.start
def refused(thread): raise RuntimeError("can't start new thread")
async def main():
    threading.Thread.start = refused
    await offload(done.append, "first")
    threading.Thread.start = start
    await offload(done.append, "second")
asyncio.run(main())
print(*done)
"""


def test_a_call_for_which_there_is_no_thread_is_made_once() -> None:
    assert subprocess.check_output([sys.executable, "-c", ONCE], text=True) == "first second\n"


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
    async def main() -> None:
        async with interlock.aconnect(url) as others:
            held: Any = await others.lock("held").acquire()
            threads.allowed = False
            async with interlock.aconnect(url) as locks:
                free = await attempt(locks.lock("free").acquire(timeout=1))
                assert isinstance(free, interlock.StoreError) or await free.release() is True
                tried = await attempt(locks.lock("held").acquire(timeout=0.1))
                assert tried is None or isinstance(tried, interlock.StoreError)
                threads.allowed = True
                await held.release()
                async with locks.lock("held", timeout=20):
                    pass
            assert held.lost is False

    asyncio.run(main())


LEASE = 5.0  # seconds; a busy machine takes some to open a session of MariaDB
FEW = 8  # open files: fewer than a connection and a waiter need


@contextmanager
def allowed(more: int) -> Iterator[None]:
    """Let this process open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    free = [number for number in range(max(used) + more + 2) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[more], hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@LINUX
@pytest.mark.parametrize("more", range(FEW))
def test_threads_without_files_get_a_lock_or_an_error(url: str, more: int) -> None:
    with interlock.connect(url, ttl=LEASE) as others:
        held: Any = others.lock("held").acquire()
        with allowed(more):
            locks = outcome(lambda: interlock.connect(url, ttl=LEASE))
            if isinstance(locks, interlock.Locks):
                free = outcome(lambda: locks.lock("free").acquire(timeout=1))
                assert isinstance(free, interlock.StoreError) or outcome(free.release) is not False
                tried = outcome(lambda: locks.lock("held").acquire(timeout=0.1))
                assert tried is None or isinstance(tried, interlock.StoreError)
                outcome(locks.close)
        assert held.release() is True
        for name in ("free", "held"):
            with others.lock(name, timeout=20):
                pass


@LINUX
@pytest.mark.parametrize("more", range(FEW))
def test_tasks_without_files_get_a_lock_or_an_error(url: str, more: int) -> None:
    async def main() -> None:
        async with interlock.aconnect(url, ttl=LEASE) as others:
            held: Any = await others.lock("held").acquire()
            with allowed(more):
                locks = outcome(lambda: interlock.aconnect(url, ttl=LEASE))
                if isinstance(locks, interlock.AsyncLocks):
                    free = await attempt(locks.lock("free").acquire(timeout=1))
                    assert isinstance(free, interlock.StoreError) or await attempt(free.release()) is not False
                    tried = await attempt(locks.lock("held").acquire(timeout=0.1))
                    assert tried is None or isinstance(tried, interlock.StoreError)
                    await attempt(locks.close())
            assert await held.release() is True
            for name in ("free", "held"):
                async with others.lock(name, timeout=20):
                    pass

    asyncio.run(main())
