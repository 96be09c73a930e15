"""Many tasks at once on a store that does not answer: each waits no longer than its own time-out."""

import asyncio
from contextlib import suppress
from typing import Any

import interlock
from interlock.testing.waiting import WAIT_LIMIT

CROWD = 64  # more than the worker threads of any store: consecutive time-outs would take longer than WAIT_LIMIT


async def nobody_waits_for_the_others(locks: Any) -> None:
    """Let many tasks acquire locks, each of which fails or times out."""

    async def one(number: int) -> None:
        with suppress(interlock.StoreError):
            assert await locks.lock(f"crowd {number}").acquire(timeout=0.2) is None

    async with asyncio.timeout(WAIT_LIMIT):
        await asyncio.gather(*(one(number) for number in range(CROWD)))
