"""Notifications over the loopback interface, as Windows has them: hints, and connections that end with a process."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.core.claims import MICROS
from interlock.core.line import QueuedClaim
from interlock.core.queue import Granted
from interlock.runtime.host_notifier import LoopbackDatagrams, Neighbours
from interlock.runtime.process import HOST
from interlock.runtime.waiters import Waiters
from interlock.stores.files.loopback import DeathWatch
from interlock.testing.waiting import eventually

LISTENS = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"


class Woken:
    """A waiter that counts how often it was woken; a stand-in for `LoopbackWaiting`."""

    def __init__(self) -> None:
        self.messages: list[Granted | None] = []
        self.watched: set[str] = set()

    def wake(self, message: Granted | None = None) -> None:
        self.messages.append(message)


def place(id: str, host: str, channel: str) -> QueuedClaim:
    """Return a holder's claim of another process."""
    return QueuedClaim(
        id, "using", 1, 1, MICROS, MICROS, 0, 7, 1, 1, 0, False, "main", "", f"{host} 1", channel, ""
    )  # fmt: skip


@pytest.fixture
def neighbours() -> Iterator[Neighbours]:
    found = Neighbours(Waiters(), LoopbackDatagrams())
    found.join()
    yield found
    found.leave()


def test_a_datagram_is_a_hint_and_grants_nothing(neighbours: Neighbours) -> None:
    waiter, other = Woken(), Neighbours(Waiters(), LoopbackDatagrams())
    neighbours.waiters.add("a" * 32, waiter)
    neighbours.listen()
    other.notify_others([place("a" * 32, HOST, neighbours.channel)])
    eventually(lambda: waiter.messages == [None])


def test_a_claim_of_another_host_gets_no_datagram(neighbours: Neighbours) -> None:
    waiter, other = Woken(), Neighbours(Waiters(), LoopbackDatagrams())
    neighbours.waiters.add("a", waiter)
    neighbours.waiters.add("b", waiter)
    neighbours.listen()
    other.notify_others([place("a", "elsewhere", neighbours.channel)])
    other.notify_others([place("b", HOST, neighbours.channel)])
    eventually(lambda: len(waiter.messages) == 1)


def test_foreign_datagrams_do_no_harm(neighbours: Neighbours) -> None:
    waiter = Woken()
    neighbours.waiters.add("a", waiter)
    neighbours.listen()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as foreign:
        for data in (b"", b"\xff\0\n", b"x" * 60_000, b"a 9 9"):
            foreign.sendto(data, ("127.0.0.1", int(neighbours.channel)))
    eventually(lambda: waiter.messages == [None])


@pytest.mark.parametrize("name", ["bind", "sendto"])
def test_nobody_listens_where_loopback_is_blocked(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocked(socket.socket):
        pass

    def fails(self: Any, *words: Any) -> int:
        if name == "bind":
            raise PermissionError("blocked")
        return 0  # it says that it was sent

    setattr(Blocked, name, fails)
    monkeypatch.setattr(socket, "socket", Blocked)
    found = Neighbours(Waiters(), LoopbackDatagrams())
    found.listen()
    assert found.channel == ""
    found.send("1", ["a 0"])


class Lives:
    """A process that listens; a stand-in for `Liveness`."""

    closed = False

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", LISTENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.token = f"1-{'0' * 12}-{self.process.stdout.readline().strip()}"
        self.zombie = False

    def is_alive(self, token: str) -> bool:
        return self.zombie or self.process.poll() is None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def lives() -> Iterator[Lives]:
    found = Lives()
    yield found
    found.kill()


def test_the_death_of_a_process_wakes_its_waiters(lives: Any) -> None:
    deaths, waiters = DeathWatch(), [Woken(), Woken()]
    for waiter in waiters:
        deaths.watch(lives, waiter, {lives.token})  # type: ignore[arg-type]
    other: Any = Woken()
    deaths.watch(lives, other, {lives.token})
    deaths.watch(lives, other, set())
    lives.kill()
    eventually(lambda: all(waiter.messages == [None] for waiter in waiters))
    assert other.messages == []


def test_who_dies_before_it_is_watched_wakes_too(lives: Any) -> None:
    lives.kill()
    waiter: Any = Woken()
    DeathWatch().watch(lives, waiter, {lives.token})
    eventually(lambda: waiter.messages == [None])


def test_a_lock_that_is_freed_after_the_connection_is_noticed(lives: Any) -> None:
    """The socket of a dead process may end before the OS lock of its liveness file."""
    waiter: Any = Woken()
    deaths = DeathWatch()
    deaths.watch(lives, waiter, {lives.token})
    lives.zombie = True
    lives.kill()
    assert waiter.messages == []
    lives.zombie = False
    eventually(lambda: waiter.messages == [None])


@pytest.mark.parametrize("port", ["0", "none", "1"])
def test_a_process_that_cannot_be_connected_to_wakes_nobody(port: str, lives: Any) -> None:
    waiter: Any = Woken()
    deaths = DeathWatch()
    deaths.watch(lives, waiter, {f"1-{'0' * 12}-{port}"})
    late: Any = Woken()
    lives_too = Lives()
    deaths.watch(lives_too, late, {lives_too.token})  # type: ignore[arg-type]
    lives_too.kill()
    eventually(lambda: late.messages == [None])
    assert waiter.messages == []
