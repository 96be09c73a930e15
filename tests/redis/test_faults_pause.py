"""The server stops for a while: SIGSTOP, CLIENT PAUSE."""

import subprocess
import sys
import time
from typing import Any

import pytest

from interlock.core.errors import LockLost
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import Stalls, throughout
from tests.servers import RedisServer
from tests.support.cli_processes import Process
from tests.support.redis_helpers import connect_to, until_lost

LATE = 0.2  # seconds after the deadline until a loss is reported


def test_a_body_is_told_while_the_server_is_stopped(world: ContractWorld, server: RedisServer) -> None:
    lock = connect_to(world, server.url + "?socket_timeout=0.5").lock(world.name, ttl=1)

    def body(grant: Any) -> Any:
        server.pause()
        return until_lost(world, grant)

    with pytest.raises(LockLost):
        world.actor().within(lock, body)
    server.resume()


COMMAND = """
import signal, sys, time

def stop(*_):
    print(time.monotonic(), flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, stop)
print("runs", flush=True)
time.sleep(60)
"""


def test_the_command_ends_at_the_deadline_of_a_stopped_server(server: RedisServer) -> None:
    run = [sys.executable, "-m", "interlock", "run", "--store", server.url, "--ttl", "1.5", "a name", "--"]
    with Process([*run, sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True) as process:
        assert process.read_line() == "runs"
        throughout(1.0, lambda: process.poll() is None)  # renewed once
        with Stalls() as machine:
            server.pause()
            stopped = time.monotonic()
            ended = float(process.read_line())
        assert machine.between(stopped, ended) < 1.5 + 2 * LATE
        assert process.wait(10) == 70
