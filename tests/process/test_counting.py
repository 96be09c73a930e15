"""Many processes, hundreds of critical sections, no lost update; some processes are killed meanwhile."""

import random

import pytest

import interlock
from interlock.testing.other_process import count, logged
from interlock.testing.store_fixture import StoreFixture
from interlock.testing.waiting import RENEWED, eventually
from tests.process.conftest import Start
from tests.support.stores import ROWS

SEED = 20261121


WORK = """
with interlock.connect(url, ttl={ttl}) as mine:
    while True:
        with mine.lock("book") as grant:
            log_next({log!r}, grant.fence, 0.0002)
"""


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.frees_at_death or row.name in ("valkey", "sqlite")],
    indirect=True,
    ids=lambda row: row.name,
)
def test_processes_that_are_killed_at_random_lose_no_update(
    place: StoreFixture, locks: interlock.Locks, remote: Start, log: str
) -> None:
    chance = random.Random(SEED)
    workers = [remote() for _ in range(8 if place.frees_at_death else 4)]
    for worker in workers:
        worker.start(WORK.format(log=log, ttl=30 if place.frees_at_death else RENEWED))
    open(log, "a").close()
    for worker in workers:
        goal = len(logged(log)[0]) + chance.randrange(10, 40)
        eventually(lambda goal=goal: len(logged(log)[0]) >= goal)  # type: ignore[misc]
        worker.kill()
    with locks.lock("book", timeout=10) as last:
        numbers, fences = logged(log)
    assert len(numbers) >= 10 * len(workers)
    assert numbers == list(range(1, len(numbers) + 1))
    assert fences == sorted(set(fences))
    assert last.fence > fences[-1]


def test_threads_tasks_and_processes_lose_no_update_together(url: str, remote: Start, log: str) -> None:
    threads, tasks = remote(), remote()
    threads.start(
        "import threading\n"
        f"workers = [threading.Thread(target=count, args=(url, 'book', {log!r}, 6)) for _ in range(4)]\n"
        "for worker in workers: worker.start()\n"
        "for worker in workers: worker.join()"
    )
    tasks.start(
        "import asyncio\n"
        "async def main():\n"
        "    async with interlock.aconnect(url) as alocks:\n"
        "        lock = alocks.lock('book')\n"
        "        async def work():\n"
        "            for _ in range(6):\n"
        "                async with lock as grant:\n"
        f"                    log_next({log!r}, grant.fence)\n"
        "        await asyncio.gather(*(work() for _ in range(4)))\n"
        "asyncio.run(main())"
    )
    count(url, "book", log, 6)
    threads.answer(60)
    tasks.answer(60)
    numbers, fences = logged(log)
    assert numbers == list(range(1, 55))
    assert fences == sorted(set(fences))


def test_cancelled_tasks_of_several_processes_lose_no_update(locks: interlock.Locks, remote: Start, log: str) -> None:
    workers = [remote() for _ in range(3)]
    for worker in workers:
        worker.start(
            "import asyncio\n"
            "async def main():\n"
            "    done = 0\n"
            "    async with interlock.aconnect(url) as alocks:\n"
            "        async def work():\n"
            "            nonlocal done\n"
            "            async with alocks.lock('book') as grant:\n"
            f"                log_next({log!r}, grant.fence)\n"
            "                done += 1\n"
            "        for _ in range(2):\n"
            "            crowd = [asyncio.ensure_future(work()) for _ in range(6)]\n"
            "            await asyncio.sleep(0.001)\n"
            "            for task in crowd[::2]: task.cancel()\n"
            "            await asyncio.wait(crowd)\n"
            "    return done\n"
            "result = asyncio.run(main())"
        )
    done = sum(worker.answer(60) for worker in workers)
    numbers, fences = logged(log)
    assert numbers == list(range(1, done + 1))
    assert done >= 18
    assert fences == sorted(set(fences))
    assert locks.claims("book") == []
