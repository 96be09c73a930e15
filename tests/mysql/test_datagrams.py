"""On MariaDB, waiters in other processes of the host are notified by datagrams; polling is too slow to pass here."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import interlock
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually

Start = Callable[[], Remote]
NO_LOOK = "from interlock.storekit import compare_and_swap; compare_and_swap.SwapStore.poll_after = 600.0"
WAIT = "with locks.lock('a', ttl=600) as held: result = held.fence"
WAIT_AS_TASK = """
import asyncio
async def wait():
    async with interlock.aconnect({url!r}) as tasks:
        async with tasks.lock('a', ttl=600) as held:
            return held.fence
result = asyncio.run(wait())
"""
WAIT_IN_CHILD = """
import os
child = os.fork()
if not child:
    try:
        with locks.lock('a', ttl=600): pass
        os._exit(0)
    finally: os._exit(1)
while len(locks.claims('a')) < 2: pass
with locks.lock('a', ttl=600): pass
result = os.waitpid(child, 0)[1]
"""


@pytest.fixture
def remote(url: str, locks: Any) -> Iterator[Start]:
    """Starts processes that are connected to the place, and that have waited before."""
    made: list[Remote] = []

    def make() -> Remote:
        made.append(Remote(url))
        with locks.lock("a"):
            made[-1].start("import interlock; locks.lock('a').acquire().release()")
            eventually(lambda: len(locks.claims("a")) == 2)
        made[-1].answer()
        return made[-1]

    yield make
    for each in made:
        each.close()


def handed_over(locks: Any, other: Remote, waiting: str, others: int = 1) -> Any:
    """Let another process wait, release the lock, and return its answer."""
    grant = locks.lock("a").acquire()
    other.start(waiting)
    eventually(lambda: len(locks.claims("a")) == 1 + others)
    grant.release()
    return other.answer()


def test_a_waiter_of_another_process_is_told(locks: Any, remote: Start, url: str) -> None:
    other = remote()
    other.do(NO_LOOK)
    fences = [handed_over(locks, other, waiting) for waiting in (WAIT, WAIT_AS_TASK.format(url=url), WAIT)]
    assert fences == sorted(set(fences))


def test_a_forked_child_is_told_itself(locks: Any, remote: Start) -> None:
    other = remote()
    other.do(NO_LOOK)
    assert handed_over(locks, other, WAIT_IN_CHILD, others=2) == 0


def test_a_waiter_whose_loop_has_ended_is_told_in_the_next_one(
    url: str, remote: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(tasks: Any) -> None:
        assert await tasks.lock("a").acquire(timeout=0.1) is None

    async def told(tasks: Any) -> None:
        waiting = asyncio.ensure_future(tasks.lock("a", ttl=600).acquire())
        while len(await tasks.claims("a")) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        other.start("grant.release()")
        await (await waiting).release()
        await tasks.close()

    other = remote()
    monkeypatch.setattr("interlock.storekit.compare_and_swap.SwapStore.poll_after", 600.0)
    other.do("grant = locks.lock('a').acquire()")
    tasks = interlock.aconnect(url)
    asyncio.run(refused(tasks))
    asyncio.run(told(tasks))
    other.answer()
