"""A process whose threads and tasks contend for one lock, give up now and then, and see whether they are ever two.

`python mixed_worker.py URL FILE SECONDS SEED TTL`; exits with 3 if two are in at once, with 4 if a fence goes back.
"""

import asyncio
import fcntl
import os
import random
import sys
import threading
import time
from pathlib import Path

import interlock
from interlock.client._async.locks import AsyncLocks
from interlock.client._sync.locks import Locks

NAME = "mixed"
TWO_INSIDE, FENCE_WENT_BACK = 3, 4


def section(path: Path, fence: int, luck: random.Random) -> None:
    """Write one more line; who is in at the same time finds the file locked."""
    file = os.open(path, os.O_RDWR)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os._exit(TWO_INSIDE)
        last, number = map(int, os.pread(file, 100, 0).split())
        if fence <= last:
            os._exit(FENCE_WENT_BACK)
        if luck.random() < 0.1:
            time.sleep(luck.random() * 0.004)
        os.pwrite(file, b"%-60d" % fence, 0)
        os.pwrite(file, b"%-39d" % (number + 1), 60)
    finally:
        os.close(file)


def in_a_thread(locks: Locks, path: Path, end: float, ttl: float, luck: random.Random) -> None:
    """Acquire and release until the end, with all sorts of io_timeout."""
    lock = locks.lock(NAME, ttl=ttl)
    while time.monotonic() < end:
        grant = lock.acquire(timeout=luck.choice([None, None, None, 0, 0.001, 0.01, 0.05, 1]))
        if grant is not None:
            section(path, grant.fence, luck)
            grant.release()
        if luck.random() < 0.02:
            time.sleep(luck.random() * 0.01)


async def in_a_task(locks: AsyncLocks, path: Path, end: float, ttl: float, luck: random.Random) -> None:
    """As `in_a_thread`; one that waits too long is cancelled."""
    lock = locks.lock(NAME, ttl=ttl)
    while time.monotonic() < end:
        try:
            async with asyncio.timeout(luck.choice([0.003, 0.05, 5, 5, 5])), lock as grant:
                section(path, grant.fence, luck)
        except TimeoutError:
            pass
        await asyncio.sleep(0)


async def all_tasks(url: str, path: Path, end: float, ttl: float, seed: int) -> None:
    """Four tasks."""
    async with interlock.aconnect(url) as locks:
        await asyncio.gather(
            *(in_a_task(locks, path, end, ttl, random.Random(seed * 100 + each)) for each in range(4, 8))
        )


def main(url: str, file: str, seconds: str, seed: str, ttl: str) -> None:
    """Four threads, and four tasks in the main one."""
    path = Path(file)
    with interlock.connect(url) as locks:
        locks.claims()  # the time begins when it is connected, which takes seconds on a busy machine
        end = time.monotonic() + float(seconds)
        threads = [
            threading.Thread(
                target=in_a_thread, args=(locks, path, end, float(ttl), random.Random(int(seed) * 100 + each))
            )
            for each in range(4)
        ]
        for thread in threads:
            thread.start()
        asyncio.run(all_tasks(url, path, end, float(ttl), int(seed)))
        for thread in threads:
            thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
