"""A crowd is a size: thousands of claims of a killed process, or thousands that wait for one run, in one line."""

import asyncio
import time
from typing import Any

import pytest

import interlock
from tests.support.concurrent_callers import doomed_crowd, in_waves, until_there_are
from tests.support.stores import ROWS, Row

TTL = 15.0
SIZES = {
    "valkey": (4_000, 20_000),
    "file": (200, 2_000),
    "postgresql": (300, 1_000),
    "sqlite": (200, 1_000),
    "mariadb": (300, 1_000),
    "etcd": (60, 300),
}
"""How many claims on each store: in CI, and by `--whole`.

To close a connection with 5,000 claims keeps a server busy for 5 s on a loaded machine: as long as a reply may take.
"""
AT_ONCE = {"etcd": 40}
"""How many tasks of one process can acquire at the same moment, where that is fewer: etcd has 32 connections."""
CROWDED = [row for row in ROWS if row.name in SIZES]


@pytest.fixture(params=CROWDED, ids=lambda row: row.name)
def row(request: pytest.FixtureRequest) -> Row:
    """Each store on which a line of thousands takes seconds, not minutes."""
    found: Row = request.param
    return found


@pytest.fixture
def number(row: Row, pytestconfig: pytest.Config) -> int:
    """How many claims."""
    return SIZES[row.name][not pytestconfig.getoption("thin")]


def test_dead_waiters_delay_nobody_for_long(locks: interlock.Locks, url: str, number: int) -> None:
    with locks.lock("book", ttl=6 * TTL) as grant:
        doomed_crowd(locks, url, "lock", number, TTL)
        assert grant.held
        assert locks.lock("book").acquire(blocking=False) is None
    started = time.monotonic()
    with locks.lock("book", timeout=20):
        assert time.monotonic() - started < 10.0
        assert len(locks.claims("book")) == 1


def test_dead_readers_delay_no_writer_for_long(locks: interlock.Locks, url: str, row: Row, number: int) -> None:
    with locks.rwlock("book").read():
        doomed_crowd(locks, url, "readers", AT_ONCE.get(row.name, number), TTL)
        with locks.rwlock("book", timeout=20).read():
            assert len(locks.claims("book")) == 2
    with locks.rwlock("book", timeout=20).write():
        assert len(locks.claims("book")) == 1


def test_thousands_that_wait_for_one_run_get_its_result(locks: interlock.Locks, url: str, number: int) -> None:
    runs = []

    async def main() -> list[Any]:
        async with interlock.aconnect(url, ttl=120) as ours:
            once, started, go = ours.once("book", keep=60), asyncio.Event(), asyncio.Event()

            async def work() -> int:
                runs.append(1)
                started.set()
                await go.wait()
                return 5

            first = asyncio.create_task(once.run(work))
            await started.wait()
            others = await in_waves(lambda: once.run(work), number)
            await asyncio.to_thread(until_there_are, locks, number + 1)
            go.set()
            async with asyncio.timeout(120):
                return await asyncio.gather(first, *others)

    assert asyncio.run(main()) == [5] * (number + 1)
    assert len(runs) == 1


def test_one_command_evicts_thousands(locks: interlock.Locks, url: str, number: int) -> None:
    async def main() -> int:
        async with interlock.aconnect(url, ttl=120) as ours:
            reader = ours.rwlock("book").read()
            grants = await asyncio.gather(*await in_waves(reader.acquire, number // 2))
            writer = ours.rwlock("book").write()
            waiting = await in_waves(writer.acquire, number // 2)
            await asyncio.to_thread(until_there_are, locks, 2 * (number // 2))
            for each in waiting:
                each.cancel()
            count = await asyncio.to_thread(locks.evict, "book")
            await asyncio.gather(*waiting, return_exceptions=True)
            del grants
            return count

    assert asyncio.run(main()) >= number // 2
    with locks.lock("book", timeout=20):
        assert len(locks.claims("book")) == 1
