"""Many tasks at once, on a store that does not answer: none of them waits for more than its own time-out."""

import asyncio
from contextlib import suppress
from typing import Any

import interlock
from interlock.testing.waiting import WAIT_LIMIT

CROWD = 64  # far more than any store has threads: one time-out after another would take longer than WAIT_LIMIT


async def nobody_waits_for_the_others(locks: Any) -> None:
    """Let a crowd ask for locks, each of which fails, or is not had in time."""

    async def one(number: int) -> None:
        with suppress(interlock.StoreError):
            assert await locks.lock(f"crowd {number}").acquire(timeout=0.2) is None

    async with asyncio.timeout(WAIT_LIMIT):
        await asyncio.gather(*(one(number) for number in range(CROWD)))
