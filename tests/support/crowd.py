"""Many at once: tasks on a store that does not answer, threads that count, and processes."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from typing import Any

import interlock
from interlock.testing.remote import Remote
from interlock.testing.waiting import WAIT_LIMIT

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
