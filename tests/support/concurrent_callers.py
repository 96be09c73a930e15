"""Many at once: tasks on a store that does not answer, threads that count, and processes."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

import interlock
from interlock.testing.other_process import Remote
from interlock.testing.waiting import WAIT_LIMIT

WAVE = 200  # tasks
CROWD = 64  # more than the worker threads of any store: consecutive time-outs would take longer than WAIT_LIMIT


async def nobody_waits_for_the_others(locks: Any) -> None:
    """Let many tasks acquire locks, each of which fails or times out."""

    async def one(number: int) -> None:
        with suppress(interlock.StoreError):
            assert await locks.lock(f"crowd {number}").acquire(timeout=0.2) is None

    async with asyncio.timeout(WAIT_LIMIT):
        await asyncio.gather(*(one(number) for number in range(CROWD)))


def no_update_is_lost(clients: Sequence[Any], rounds: int, pause: float = 0.0) -> None:
    """Check that four threads lose no update of a counter that only a lock protects.

    Args:
        clients: the clients that they use, in turn.
        rounds: how often each of them increments it.
        pause: seconds for which each is idle once.
    """
    number = 0

    def work(locks: Any) -> None:
        nonlocal number
        for turn in range(rounds):
            if turn == rounds // 2:
                time.sleep(pause)
            with locks.lock("a", timeout=60):
                known = number
                time.sleep(0.0005)
                number = known + 1

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(work, clients[thread % len(clients)]) for thread in range(4)]:
            done.result(60)
    assert number == 4 * rounds


def processes_at(url: str) -> Iterator[Callable[[], Remote]]:
    """For a fixture: yield a function that starts another process on a store; all of them end with the test."""
    with ExitStack() as ends:
        yield lambda: ends.enter_context(closing(Remote(url)))


async def in_waves(run: Callable[[], Coroutine[Any, Any, Any]], number: int) -> list[asyncio.Task[Any]]:
    """Start many tasks, some at a time: thousands of requests at once exceed their time-outs on a busy machine."""
    tasks: list[asyncio.Task[Any]] = []
    while len(tasks) < number:
        tasks += [asyncio.create_task(run()) for _ in range(min(WAVE, number - len(tasks)))]
        await asyncio.sleep(0.05)
    return tasks


async def acquire_many(url: str, kind: str, number: int, ttl: float) -> None:
    """Acquire one lock by many tasks, and stay until the process is killed.

    Args:
        url: the store.
        kind: "lock", so that all wait while another process holds it, or "readers", which all hold it.
        number: how many tasks.
        ttl: seconds of their leases.
    """
    async with interlock.aconnect(url, ttl=ttl) as locks:
        lock = locks.lock("book") if kind == "lock" else locks.rwlock("book").read()
        grants = await asyncio.gather(*await in_waves(lock.acquire, number))
        await asyncio.Event().wait()
        del grants


def until_there_are(locks: interlock.Locks, number: int, go_on: Callable[[], bool] = lambda: True) -> None:
    """Wait until "book" has `number` claims, while `go_on()` is true; a listing of thousands takes long."""
    while len(locks.claims("book")) < number:
        assert go_on()
        time.sleep(0.5)


def doomed_crowd(locks: interlock.Locks, url: str, kind: str, number: int, ttl: float) -> None:
    """Let another process make many claims, kill it, and wait until its leases have ended.

    Args:
        locks: sees the claims.
        url, kind, number, ttl: as for `acquire_many`.
    """
    command = [sys.executable, "-m", "tests.support.concurrent_callers", url, kind, str(number), str(ttl)]
    before = len(locks.claims("book"))
    process = subprocess.Popen(command)
    try:
        until_there_are(locks, before + number, lambda: process.poll() is None)
    finally:
        process.kill()
        process.wait()
    time.sleep(ttl + 2.0)


if __name__ == "__main__":
    asyncio.run(acquire_many(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])))
