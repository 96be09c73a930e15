"""No update is lost: many transactions read one number and write it plus one."""

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import redis
import redis.asyncio

from interlock.optimistic import atransact, transact
from tests.servers import RedisServer
from tests.support.cli_processes import Process
from tests.support.optimistic_functions import increment as aincrement

WAIT_LIMIT = 60.0

WORKER = """
import sys
import redis
from interlock.optimistic import transact

url, times = sys.argv[1], int(sys.argv[2])

def increment(tx):
    tx.set("number", int(tx.get("number") or 0) + 1)

with redis.Redis.from_url(url) as client:
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(times):
        transact(client, increment, retries=None)
"""


def increment(tx: Any) -> None:
    """Read the number, and write it plus one."""
    tx.set("number", int(tx.get("number") or 0) + 1)


def test_threads_lose_no_update(server: RedisServer, other: Any) -> None:
    start = threading.Barrier(8)

    def work(_: int) -> None:
        start.wait(WAIT_LIMIT)
        for _ in range(15):
            transact(client, increment, retries=None)

    with redis.Redis.from_url(server.url) as client, ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert other.get("number") == "120"


def test_tasks_lose_no_update(server: RedisServer, other: Any) -> None:
    async def work(client: Any) -> None:
        for _ in range(10):
            await atransact(client, aincrement, retries=None)

    async def main() -> None:
        async with redis.asyncio.Redis.from_url(server.url) as client:
            async with asyncio.timeout(WAIT_LIMIT), asyncio.TaskGroup() as group:
                for _ in range(8):
                    group.create_task(work(client))

    asyncio.run(main())
    assert other.get("number") == "80"


def test_processes_lose_no_update(server: RedisServer, other: Any) -> None:
    command = [sys.executable, "-c", WORKER, server.url, "25"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with ExitStack() as ends:
        workers = [ends.enter_context(Process(command, text=True, **streams)) for _ in range(4)]
        for worker in workers:
            assert worker.read_line() == "ready"
        for worker in workers:
            worker.say("go")
        for worker in workers:
            assert worker.wait(WAIT_LIMIT) == 0
    assert other.get("number") == "100"


def test_concurrent_transactions_are_serializable(server: RedisServer, other: Any) -> None:
    """Write skew: each reads both keys and writes one; the second to commit must see the first's write."""
    for _ in range(15):
        other.mset({"on call: Anna": 1, "on call: Bert": 1})
        start = threading.Barrier(2)

        def leave(mine: str, start: threading.Barrier = start) -> None:
            start.wait(WAIT_LIMIT)

            def function(tx: Any) -> None:
                if sum(map(int, tx.mget("on call: Anna", "on call: Bert"))) > 1:
                    tx.set(mine, 0)

            transact(client, function)

        with redis.Redis.from_url(server.url) as client, ThreadPoolExecutor(2) as threads:
            list(threads.map(leave, ["on call: Anna", "on call: Bert"]))
        assert sorted(other.mget("on call: Anna", "on call: Bert")) == ["0", "1"]
