"""Event loops, one after the other in one process, hear their neighbours as long as they run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from loops_worker import files_of, wait_once
from redis_worlds import nothing_published

import interlock
from interlock.stores.redis import awire
from interlock.stores.redis.near import Near, _Socket
from interlock.testing.servers import RedisServer
from interlock.testing.waiting import PATIENCE, eventually

WORKER = Path(__file__).with_name("loops_worker.py")


def test_loops_that_end_leave_no_files_behind_and_the_next_ones_are_told(server: RedisServer) -> None:
    with interlock.connect(server.url) as locks:
        first = locks.lock("other").acquire()
        assert first is not None
        thread = threading.Thread(target=locks.lock("other").acquire)
        thread.start()
        near: Near = locks._store._near  # type: ignore[attr-defined]
        eventually(lambda: near.fd >= 0)  # this process hears its neighbours
        first.release()
        thread.join(PATIENCE)
        grant = locks.lock("page").acquire()
        assert grant is not None
        worker = subprocess.Popen([sys.executable, str(WORKER), server.url], stdout=subprocess.PIPE, text=True)
        assert worker.stdout is not None
        try:
            assert [worker.stdout.readline() for _ in range(4)] == [
                "2 True\n"
            ] * 4  # the store's, and the last loop's
            eventually(lambda: near.hear_heirs() or len(near._bells._abroad) == 1)
            with nothing_published(server):
                assert grant.release() is True
                assert worker.stdout.read() == "0 False\n"
            assert worker.wait(PATIENCE) == 0
        finally:
            worker.kill()
            worker.wait()
            worker.stdout.close()


def test_a_loop_that_finds_no_file_does_without(server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_file(self: Any) -> Any:
        raise OSError(24, "Too many open files")

    async def main() -> None:
        async with interlock.aconnect(server.url) as locks:
            await wait_once(locks)
            assert files_of(locks) == 1

    monkeypatch.setattr(_Socket, "dup", no_file)
    asyncio.run(main())


@pytest.mark.parametrize("pure", [False, True], ids=["compiled", "pure"])
def test_a_release_that_is_cancelled_while_the_next_one_enters_keeps_nobody_waiting(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, pure: bool
) -> None:
    async def main() -> None:
        async with interlock.aconnect(server.url) as locks:
            await wait_once(locks)
            lock = locks.lock("book")
            grant = await lock.acquire()
            for _ in range(3):
                assert grant is not None
                waiting = asyncio.ensure_future(lock.acquire())
                await asyncio.sleep(0)
                releasing = asyncio.ensure_future(grant.release())
                await asyncio.sleep(0)
                releasing.cancel()
                async with asyncio.timeout(2):
                    grant = await waiting
                await asyncio.wait([releasing])
            assert grant is not None
            await grant.release()

    if pure:
        monkeypatch.setattr(awire, "native", None)
    asyncio.run(main())
