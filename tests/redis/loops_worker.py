"""A process that uses one connection from several event loops, one after the other; `python loops_worker.py URL` says
how many of its files are the socket on which it hears its neighbours, after each loop and after closing."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import interlock


async def wait_once(locks: Any) -> None:
    """Let a task wait, and get the lock."""
    lock = locks.lock("book")
    first = await lock.acquire()
    waiting = asyncio.ensure_future(lock.acquire())
    await asyncio.sleep(0)
    while [claim.state for claim in await locks.claims("book")] != ["using", "pending"]:
        pass
    await first.release()
    await (await waiting).release()


def files_of(locks: Any) -> int:
    """How many files of this process are the socket for those who wait."""
    near = locks._store._near
    if near.fd < 0:
        return 0
    mine = os.fstat(near.fd).st_ino
    files = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return sum(os.path.exists(file) and os.stat(file).st_ino == mine for file in files)


def is_bound(locks: Any) -> bool:
    """Is there a socket with the name of the channel?"""
    return locks._store._channel in Path("/proc/net/unix").read_text()


async def acquire_once(locks: Any) -> None:
    """Wait for the page, which another process holds."""
    async with locks.lock("page"):
        pass


def main(url: str) -> None:
    """Four loops, a fifth one for the page, and the sixth closes."""
    locks = interlock.aconnect(url)
    for _ in range(4):
        asyncio.run(wait_once(locks))
        print(files_of(locks), is_bound(locks), flush=True)
    asyncio.run(acquire_once(locks))
    asyncio.run(locks.close())
    print(files_of(locks), is_bound(locks), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
