"""An idle watchdog uses no CPU time."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from uuid import uuid4

import interlock

WATCHED = 1.5  # seconds, five leases
MOST_BUSY = 0.3  # seconds of them


def _drop(locks: interlock.Locks) -> None:
    locks.lock("page", ttl=0.3).acquire()


def test_a_dropped_grant_with_an_ended_lease_keeps_threads_idle() -> None:
    with interlock.connect(f"memory://{uuid4().hex}") as locks, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        _drop(locks)
        gc.collect()
        began = time.process_time()
        time.sleep(WATCHED)  # the process must be idle during this time
        assert time.process_time() - began < MOST_BUSY
        assert locks.claims() == []


def test_a_dropped_grant_with_an_ended_lease_keeps_the_loop_idle() -> None:
    async def main() -> None:
        async with interlock.aconnect(f"memory://{uuid4().hex}") as locks:
            await locks.lock("page", ttl=0.3).acquire()
            gc.collect()
            began = time.process_time()
            await asyncio.sleep(WATCHED)  # the process must be idle during this time
            assert time.process_time() - began < MOST_BUSY

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        asyncio.run(main())
