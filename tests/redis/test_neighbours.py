"""Processes on one host let each other in without the server, and are no worse off where they can't."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest
from redis_worlds import connect_to, nothing_published, place_of

from interlock.errors import StoreError
from interlock.testing.remote import Remote
from interlock.testing.servers import Proxy, RedisServer
from interlock.testing.waiting import eventually
from interlock.testing.world import Place, World


@pytest.fixture
def place(server: RedisServer, proxy: Proxy) -> Place:
    """The server; the proxy before it lives longer than what is connected through it."""
    return place_of(server.url)


def hearing(world: World, where: str) -> Any:
    """Return a connection on which somebody has waited, so that it hears its neighbours."""
    locks = connect_to(world, where)
    ann, bob = world.actors(2)
    first = ann.do(locks.lock("other").acquire)
    waiting = bob.start(locks.lock("other").acquire)
    eventually(lambda: locks._store._near.fd >= 0)
    assert ann.do(first.release) is True
    assert bob.do(waiting.result(5).release) is True
    return locks


def waits(world: World, other: Remote, ahead: int = 0) -> None:
    """Let another process wait for the lock, behind so many."""
    other.start(f"grant = locks.lock({world.name!r}, ttl=2).acquire(); result = grant.fence")
    world.until_waiting(ahead + 1)


def until_told_of(locks: Any, number: int) -> None:
    """Wait until so many heirs in other processes have said so."""

    def told() -> bool:
        locks._store._near.hear_heirs()
        return len(locks._store._bells._abroad) == number

    eventually(told)


def an_heir_elsewhere(world: World, where: str, remote: Callable[[], Remote]) -> tuple[Any, ...]:
    """Hold the lock, and let an heir in another process wait for it.

    Returns:
        The connection to `where`, who holds the lock, the grant, and the other process.
    """
    locks = hearing(world, where)
    (ann,) = world.actors(1)
    first = ann.do(locks.lock(world.name).acquire)
    other = remote()
    waits(world, other)
    until_told_of(locks, 1)
    return locks, ann, first, other


def followed_by_one_here(world: World, server: RedisServer, remote: Callable[[], Remote]) -> tuple[Any, ...]:
    """As `an_heir_elsewhere`, and somebody of this process waits behind it.

    Returns:
        Who holds it, who waits behind; the grant, the other process, what the one behind will have.
    """
    locks, ann, first, other = an_heir_elsewhere(world, server.url, remote)
    (bob,) = world.actors(1)
    waiting = bob.start(locks.lock(world.name).acquire)
    world.until_waiting(2)
    return ann, bob, first, other, waiting


def test_an_heir_in_another_process_is_let_in_though_the_server_does_not_answer(
    world: World, proxy: Proxy, remote: Callable[[], Remote]
) -> None:
    _, ann, first, other = an_heir_elsewhere(world, proxy.url + "?socket_timeout=0.5", remote)
    proxy.black_hole()
    releasing = ann.start(first.release)
    second = other.answer()
    assert second > first.fence
    with pytest.raises(StoreError):
        releasing.result(5)
    proxy.restore()
    assert other.do("result = grant.release()") is True
    assert ann.do(first.release) is True
    assert world.nothing_left()


def test_the_server_need_not_tell_an_heir_that_was_let_in(
    world: World, server: RedisServer, remote: Callable[[], Remote]
) -> None:
    _, ann, first, other = an_heir_elsewhere(world, server.url, remote)
    with nothing_published(server):
        assert ann.do(first.release) is True
        assert other.answer() > first.fence
    assert other.do("result = grant.release()") is True


def test_turns_go_round_between_processes(world: World, server: RedisServer, remote: Callable[[], Remote]) -> None:
    locks = hearing(world, server.url)
    lock = locks.lock(world.name)
    ann, bob = world.actors(2)
    others = [remote(), remote()]
    fences = []
    grant = ann.do(lock.acquire)
    for _ in range(5):
        for number, other in enumerate(others):
            waits(world, other, ahead=number)
        again = bob.start(lock.acquire)
        world.until_waiting(3)
        fences.append(grant.fence)
        assert ann.do(grant.release) is True
        for other in others:
            fences.append(other.answer())
            assert not again.done()
            assert other.do("result = grant.release()") is True
        grant = again.result(5)
        ann, bob = bob, ann
    assert fences == sorted(set(fences))
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_an_heir_that_was_killed_delays_the_next_by_its_lease(
    world: World, server: RedisServer, remote: Callable[[], Remote]
) -> None:
    ann, bob, first, other, waiting = followed_by_one_here(world, server, remote)
    other.kill()
    assert ann.do(first.release) is True
    second = waiting.result(10)
    assert bob.do(second.release) is True
    assert world.nothing_left()


def test_an_heir_that_stands_still_is_let_in_no_more_when_its_lease_is_over(
    world: World, server: RedisServer, remote: Callable[[], Remote]
) -> None:
    ann, bob, first, other, waiting = followed_by_one_here(world, server, remote)
    other.signal(signal.SIGSTOP)
    assert ann.do(first.release) is True
    second = waiting.result(10)
    other.signal(signal.SIGCONT)
    world.until_waiting(1)
    assert bob.do(second.release) is True
    assert other.answer() > second.fence
    assert other.do("result = grant.release()") is True
    assert world.nothing_left()


def test_a_forked_child_takes_no_words_of_its_parent(
    world: World, server: RedisServer, remote: Callable[[], Remote]
) -> None:
    locks = hearing(world, server.url)
    (ann,) = world.actors(1)
    first = ann.do(locks.lock(world.name).acquire)
    other = remote()
    other.do(
        f"import os, threading; got = []; lock = locks.lock({world.name!r});"
        "thread = threading.Thread(target=lambda: got.append(lock.acquire()), daemon=True);"
        "thread.start(); result = None"
    )
    world.until_waiting(1)
    until_told_of(locks, 1)
    child = other.do(
        "ready, go = os.pipe(), os.pipe(); child = os.fork()\n"
        "if child == 0:\n"
        "    os.write(ready[1], b'!' if locks._store._near.fd == -1 else b'?'); os.read(go[0], 1); os._exit(0)\n"
        "result = os.read(ready[0], 1).decode()"
    )
    assert child == "!"
    with nothing_published(server):
        assert ann.do(first.release) is True
        assert other.do("thread.join(5); result = got[0].fence") > first.fence
    assert other.do("os.write(go[1], b'!'); os.waitpid(child, 0); result = got[0].release()") is True
    assert world.nothing_left()
