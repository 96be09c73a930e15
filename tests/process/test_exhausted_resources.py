"""Without room for more threads or open files, an acquire works or reports it; later everything works again."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.store_fixture import TASKS
from tests.support.client_actors import SYNC_AND_ASYNC, side
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


def client(sync_or_async: str, url: str, **how: Any) -> Any:
    """Return a client of a colour."""
    return (interlock.aconnect if sync_or_async == TASKS else interlock.connect)(url, **how)


def outcome(call: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """Return the grant, None, or the error that was raised."""
    try:
        return call(*args, **how)
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


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_without_threads_an_acquire_works_or_reports_it(url: str, threads: Threads, sync_or_async: str) -> None:
    with side(sync_or_async, url) as others:
        held = others.take("held")
        threads.allowed = False
        locks = client(sync_or_async, url)
        free = outcome(others.do, locks.lock("free").acquire, timeout=1)
        assert isinstance(free, interlock.StoreError) or others.do(free.release) is True
        tried = outcome(others.do, locks.lock("held").acquire, timeout=0.1)
        assert tried is None or isinstance(tried, interlock.StoreError)
        threads.allowed = True
        others.do(held.release)
        assert others.do(others.do(locks.lock("held").acquire, timeout=20).release) is True
        others.do(locks.close)
        threads.allowed = False
    assert held.lost is False


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
@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_who_locks_without_files_gets_a_lock_or_an_error(url: str, more: int, sync_or_async: str) -> None:
    with side(sync_or_async, url) as others:  # closed only when files may be opened
        locks = client(sync_or_async, url, ttl=LEASE)
        held = others.do(locks.lock("held").acquire)
        with allowed(more):
            made = outcome(client, sync_or_async, url, ttl=LEASE)
            if not isinstance(made, interlock.LockError):
                free = outcome(others.do, made.lock("free").acquire, timeout=1)
                assert isinstance(free, interlock.StoreError) or outcome(others.do, free.release) is not False
                tried = outcome(others.do, made.lock("held").acquire, timeout=0.1)
                assert tried is None or isinstance(tried, interlock.StoreError)
                outcome(others.do, made.close)
        assert others.do(held.release) is True
        for name in ("free", "held"):
            assert others.do(others.do(locks.lock(name).acquire, timeout=20).release) is True
        others.do(locks.close)
