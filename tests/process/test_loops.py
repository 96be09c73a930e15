"""Event loops that end one after the other, on one connection: it keeps nothing of an ended loop."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path
from uuid import uuid4

import pytest

import interlock
from interlock.api._async.locks import AsyncLocks


async def hand_over_once(locks: AsyncLocks) -> None:
    """Let one task hand a lock over to another."""
    lock = locks.lock("page")
    grant = await lock.acquire()
    waiting = asyncio.ensure_future(lock.acquire())
    while len(await locks.claims()) < 2:  # noqa: ASYNC110 - no event is set when a waiter enters
        await asyncio.sleep(0.001)
    await grant.release()
    later = await waiting
    await later.release()


def _loops() -> int:
    gc.collect()
    return len([each for each in gc.get_objects() if isinstance(each, asyncio.BaseEventLoop) and each.is_closed()])


@pytest.mark.parametrize("store", ["memory", "file"])
def test_ended_loops_leave_no_file_thread_loop_or_lock(store: str, tmp_path: Path) -> None:
    url = f"memory://{uuid4().hex}" if store == "memory" else f"file://{tmp_path}/locks"
    locks = interlock.aconnect(url)
    for _ in range(2):  # the start of a loop closes what the ended loop left open
        asyncio.run(hand_over_once(locks))
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    loops = _loops()
    for _ in range(5):
        asyncio.run(hand_over_once(locks))
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads
    assert _loops() <= loops + 1
    with interlock.connect(url) as eye:
        assert eye.claims() == []
    asyncio.run(locks.close())
