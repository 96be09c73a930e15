"""Clocks of servers that differ: a new primary that is behind; and how long the key of an idle name lives."""

import re
import socket
import threading
import time

import pytest

from interlock.testing.waiting import SET_BACK, eventually
from interlock.testing.world import World
from tests.servers import RedisServer
from tests.support.redis_worlds import key_of

AHEAD = 90  # seconds that the primary was ahead whose place another one took
KEEP, SPARE = 60.0, 30.0  # seconds; as in head.lua
LOST = 30  # seconds before the fail-over in which grants may have been lost
BRIEF = 1.5  # seconds


def lives_for(server: RedisServer, name: str) -> float:
    """Return the seconds until the key of a name expires; 0 if there is none."""
    return max(0, server.command("PTTL", key_of(name))) / 1000


@pytest.mark.parametrize("ttl", [30, 3600])
def test_the_key_of_an_idle_name_expires_when_the_clock_is_beyond_its_fence(
    world: World, server: RedisServer, ttl: int
) -> None:
    ann, bob = world.actors(2)
    lock = world.connect().lock(world.name, ttl=ttl)
    grant = ann.do(lock.acquire)
    assert lives_for(server, world.name) > ttl + KEEP - 1
    assert ann.do(grant.release) is True
    assert KEEP - 1 < lives_for(server, world.name) <= KEEP + SPARE + 30 + SET_BACK
    grant = ann.do(lock.acquire)  # with a waiter it is another script
    waiting = bob.start(lock.acquire)
    world.until_waiting(1)
    assert lives_for(server, world.name) > ttl + KEEP - 1
    assert ann.do(grant.release) is True
    assert bob.do(waiting.result(10).release) is True
    assert KEEP - 1 < lives_for(server, world.name) <= KEEP + SPARE + 30 + SET_BACK


def test_fences_increase_when_the_key_of_an_idle_name_has_expired(world: World, server: RedisServer) -> None:
    ann = world.actor()
    lock = world.connect().lock(world.name)
    fences = []
    for _ in range(3):
        grant = ann.do(lock.acquire)
        fences.append(grant.fence)
        assert ann.do(grant.release) is True
        server.command("PEXPIRE", key_of(world.name), 1)  # as if KEEP were over
        eventually(lambda: server.command("EXISTS", key_of(world.name)) == 0)
    assert fences == sorted(set(fences))
    assert time.time() * 1e6 - fences[-1] < 60e6


class Fast:
    """A replica by its address, whose clock is ahead; it answers nothing else."""

    def __init__(self, ahead: float) -> None:
        self._ahead = ahead
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client:
            while data := client.recv(65536):
                for word in re.findall(rb"\*\d+\r\n\$\d+\r\n(\w+)\r\n", data):
                    now = time.time() + self._ahead
                    time_now = pack_reply(int(now), int(now % 1 * 1e6))
                    client.sendall(time_now if word == b"TIME" else b"+OK\r\n")

    def close(self) -> None:
        """Answer no new connection."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def pack_reply(*numbers: int) -> bytes:
    """Return a reply of some numbers as text, as a server sends it."""
    words = [str(number).encode() for number in numbers]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


@pytest.mark.parametrize(
    ("ahead", "status", "says"),
    [
        (0.0, "ok", "2 servers"),
        (4.0, "warn", "12 s and longer"),
        (31.0, "fail", "ahead of"),
        (None, "warn", "asked"),
    ],
)
def test_the_doctor_compares_the_clocks_of_a_primary_and_its_replicas(
    world: World, server: RedisServer, ahead: float | None, status: str, says: str
) -> None:
    fast = Fast(ahead or 0.0)
    config = {
        "replicaof": f"{server.host} {server.port}",
        "replica-announce-ip": "127.0.0.1",
        "replica-announce-port": str(fast.port),
    }
    server.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    with RedisServer(server.kind, config=config) as replica:
        eventually(lambda: replica.info("replication")["master_link_status"] == "up")
        if ahead is None:
            fast.close()
        checks = {check.name: check for check in world.actor().do(world.connect().doctor)}
    if ahead is not None:
        fast.close()
    found = checks["clocks"]
    assert found.status == status
    assert re.search(says, found.detail)
    if ahead:
        assert str(fast.port) in found.detail


def test_a_server_alone_has_no_clock_to_compare(world: World, server: RedisServer) -> None:
    assert "clocks" not in {check.name for check in world.actor().do(world.connect().doctor)}
