"""One process of one version: it opens a row once, and then measures on command.

It runs in the environment of its version, without the rest of `bench`, and may use only what both versions offer.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import interlock

LIMIT = 60  # seconds for a command; the alarm ends a process that hangs in a lock
SLICE = 0.002  # seconds; the median of slices excludes those in which another program had the processor
THREADS, TASKS = 16, 100

Round = Callable[[float, float], float]
"""Measures from one moment to another, both monotonic; returns how often the lock was taken each second."""


def pairs(closing: ExitStack, url: str, name: str) -> Round:
    """`with lock: pass`, without contention."""
    lock = closing.enter_context(interlock.connect(url)).lock(name)

    def batch(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            with lock:
                pass
        return time.perf_counter() - began

    return sliced(batch)


def async_pairs(closing: ExitStack, url: str, name: str) -> Round:
    """`async with lock: pass`, without contention."""
    runner, locks = async_client(closing, url)
    lock = locks.lock(name)

    async def batch(times: int) -> float:
        began = time.perf_counter()  # after the start of the loop, which does not count
        for _ in range(times):
            async with lock:
                pass
        return time.perf_counter() - began

    return sliced(lambda times: runner.run(batch(times)))


def fresh_names(closing: ExitStack, url: str, name: str) -> Round:
    """A new name each time."""
    locks = closing.enter_context(interlock.connect(url))
    numbers = itertools.count()

    def batch(times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            with locks.lock(f"{name}-{next(numbers)}"):
                pass
        return time.perf_counter() - began

    return sliced(batch)


def contended(closing: ExitStack, url: str, name: str, threads: int = 1) -> Round:
    """Threads that take one name repeatedly, in each process of the row."""
    locks = closing.enter_context(interlock.connect(url))
    pool = closing.enter_context(ThreadPoolExecutor(threads))

    def sections(until: float) -> int:
        lock, count = locks.lock(name), 0
        while time.monotonic() < until:
            with lock:
                count += time.monotonic() < until
        return count

    def measure(start: float, until: float) -> float:
        time.sleep(max(0.0, start - time.monotonic()))
        return sum(pool.map(sections, [until] * threads)) / (until - start)

    return measure


def threads(closing: ExitStack, url: str, name: str) -> Round:
    """16 threads of one process on one name."""
    return contended(closing, url, name, THREADS)


def tasks(closing: ExitStack, url: str, name: str) -> Round:
    """100 tasks of one loop on one name."""
    runner, locks = async_client(closing, url)

    async def sections(until: float) -> int:
        lock, count = locks.lock(name), 0
        while time.monotonic() < until:
            async with lock:
                count += time.monotonic() < until
        return count

    async def all_sections(until: float) -> int:
        return sum(await asyncio.gather(*[sections(until) for _ in range(TASKS)]))

    def measure(start: float, until: float) -> float:
        return runner.run(all_sections(until)) / (until - start)

    return measure


def async_client(closing: ExitStack, url: str) -> tuple[asyncio.Runner, Any]:
    """An event loop with a client; the loop does not run between two measurements."""
    runner = closing.enter_context(asyncio.Runner())

    async def connect() -> Any:
        return interlock.aconnect(url)

    async def close() -> None:
        await locks.close()

    locks = runner.run(connect())
    closing.callback(lambda: runner.run(close()))
    return runner, locks


def sliced(batch: Callable[[int], float]) -> Round:
    """Measure in short slices.

    Args:
        batch: takes the lock so many times, and returns the seconds.
    """
    times = 1
    batch(times)  # a warm-up, which connects
    while min(batch(times), batch(times), batch(times)) < SLICE:
        times *= 2

    def measure(start: float, until: float) -> float:
        slices = [batch(times)]
        while time.monotonic() < until:
            slices.append(batch(times))
        return times / median(slices)

    return measure


KINDS = {each.__name__: each for each in (pairs, async_pairs, fresh_names, contended, threads, tasks)}


def serve(pipe: Connection) -> None:
    """Perform the commands from the pipe until it is closed: open a row, measure a round, close the row."""
    closing = ExitStack()
    measure: Round = lambda start, until: 0.0  # noqa: E731
    folder = Path(interlock.__file__).parent
    pipe.send(("done", (str(folder), sorted(each.name for each in folder.rglob("*.so")))))
    while True:
        try:
            word, *arguments = pipe.recv()
        except EOFError:
            return
        signal.alarm(LIMIT)
        answer: object = None
        try:
            if word == "open":
                kind, url, name = arguments
                measure = KINDS[kind](closing, url, name)
            elif word == "measure":
                answer = measure(*arguments)
            else:
                closing.close()
        except Exception:
            pipe.send(("error", traceback.format_exc()))
        else:
            pipe.send(("done", answer))
        signal.alarm(0)


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])))
