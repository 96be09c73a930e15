"""Other tasks of an event loop run, also while fast locks never suspend."""

import asyncio
import time
from typing import Any

import pytest

from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.store_fixture import ContractWorld

PAIRS = 300_000  # more than any store performs during the test
TICKS = 10
MOST_BUSY = 0.2  # seconds of CPU time of the loop for all ticks, independent of other load


@pytest.mark.parametrize("what", ["acquire", "re-enter", "renew", "locked", "claims"])
@of_tasks
def test_what_completes_at_once_lets_other_tasks_run(world: ContractWorld, what: str, locks: Any) -> None:
    lock = locks.rlock(world.name) if what == "re-enter" else locks.lock(world.name)

    async def again_and_again(grant: Any) -> None:
        if what == "re-enter":
            await lock.acquire()
        for _ in range(PAIRS):
            if what in ("acquire", "re-enter"):
                async with lock:
                    pass
            else:
                await {"renew": grant.renew, "locked": lock.locked, "claims": locks.claims}[what]()

    async def story() -> None:
        grant = await locks.lock(world.fresh_name()).acquire()
        task = asyncio.ensure_future(again_and_again(grant))
        began = time.thread_time()
        for _ in range(TICKS):
            await asyncio.sleep(0.001)
        busy = time.thread_time() - began
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert busy < MOST_BUSY
        if what == "re-enter":
            await locks.evict(world.name)  # the task of the claim has ended
        await grant.release()

    world.run(story())
    assert world.nothing_left()
