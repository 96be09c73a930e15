"""Files: closing while threads and tasks wait; no waiter reads or watches a descriptor that was reused."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import interlock
from interlock import StoreError
from interlock.stores.files import steps
from interlock.testing.other_process import Remote
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.support.files_folder import connect, descriptors, until_waiting

WAITERS = 5
BYTES = bytes(range(256)) * 4


@pytest.fixture
def remote(folder: Path) -> Iterator[Remote]:
    """Another process on the folder, which holds the lock."""
    other = Remote(f"file://{folder}")
    other.do("grant = locks.lock('book').acquire()")
    yield other
    other.close()


def many_sockets() -> list[tuple[socket.socket, socket.socket]]:
    """Open sockets that get the numbers of the descriptors that were closed just before."""
    return [socket.socketpair() for _ in range(20)]


def test_threads_that_wait_when_it_is_closed_get_a_store_error(folder: Path, remote: Remote) -> None:
    before = descriptors()
    locks, pool = connect(folder), ThreadPoolExecutor(WAITERS)
    waits = [pool.submit(locks.lock("book").acquire) for _ in range(WAITERS)]
    until_waiting(folder, WAITERS)
    locks.close()
    pairs = many_sockets()
    for _, theirs in pairs:
        theirs.sendall(BYTES)
    for wait in waits:
        with pytest.raises(StoreError, match="closed"):
            wait.result(WAIT_LIMIT)
    pool.shutdown()
    for ours, theirs in pairs:
        assert ours.recv(4096) == BYTES  # no former waiter has read from them
        ours.close()
        theirs.close()
    until_waiting(folder, 0)
    eventually(lambda: descriptors() <= before)
    assert remote.do("result = grant.release()") is True


def test_tasks_that_wait_when_it_is_closed_get_a_store_error(folder: Path, remote: Remote) -> None:
    async def main() -> None:
        before = descriptors()
        locks = interlock.aconnect(f"file://{folder}")
        waits = [asyncio.create_task(locks.lock("book").acquire()) for _ in range(WAITERS)]
        await asyncio.to_thread(until_waiting, folder, WAITERS)
        await locks.close()
        # The sockets get the numbers of the pipes; the loop must watch them as sockets.
        pairs = many_sockets()
        found = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), WAIT_LIMIT)
        assert [type(each) for each in found] == [StoreError] * WAITERS
        pairs += many_sockets()
        loop = asyncio.get_running_loop()
        for ours, theirs in pairs:
            ours.setblocking(False)
            receiving = asyncio.create_task(loop.sock_recv(ours, 4096))
            await asyncio.sleep(0)  # it waits for the socket to become readable
            theirs.sendall(BYTES)
            assert await asyncio.wait_for(receiving, WAIT_LIMIT) == BYTES
            ours.close()
            theirs.close()
        assert descriptors() <= before

    asyncio.run(main())
    until_waiting(folder, 0)


def test_two_threads_that_connect_close_what_was_dropped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    closed: list[int] = []

    def dropped() -> None:
        looks.append(1)
        if len(looks) == 1:  # the other thread connects while the first one looks
            steps.close_dropped()

    monkeypatch.setattr(steps, "_open", {dropped: SimpleNamespace(close=lambda: closed.append(1))})
    steps.close_dropped()
    assert (len(looks), len(closed)) == (2, 1)
