"""The server loses connections, subscriptions, scripts, or all data."""

import pytest

from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import WAIT_LIMIT
from tests.servers import RedisServer, Refused
from tests.support.client_actors import hand_over
from tests.support.redis_helpers import client_ids


def kill_clients(server: RedisServer, kind: str) -> int:
    """Close the connections of a kind ("normal" or "pubsub") from the server's side; return how many."""
    killed = 0
    with server.wire() as wire:
        for number in client_ids(wire, kind):
            try:
                wire.ask("CLIENT", "KILL", "ID", number)
            except Refused:
                continue  # its owner closed it meanwhile
            killed += 1
    return killed


def test_a_killed_connection_is_made_anew(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    grant = ann.do(lock.acquire)
    assert kill_clients(server, "normal") >= 1
    assert ann.do(grant.release) is True
    assert kill_clients(server, "normal") >= 1
    assert ann.do(ann.do(lock.acquire).release) is True
    assert world.nothing_left()


@pytest.mark.usefixtures("without_polling")
def test_a_waiter_with_a_killed_subscription_gets_the_lock(world: ContractWorld, server: RedisServer) -> None:
    ann, bob = world.actors(2)
    grant = ann.do(world.connect().lock(world.name).acquire)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    assert kill_clients(server, "pubsub") >= 1
    hand_over(ann, grant, bob, waiting, WAIT_LIMIT)


def test_flushed_scripts_are_loaded_again(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    for _ in range(2):
        server.command("SCRIPT", "FLUSH")
        grant = ann.do(lock.acquire)
        server.command("SCRIPT", "FLUSH")
        assert ann.do(grant.renew) is True
        server.command("SCRIPT", "FLUSH")
        assert len(world.eye.claims(world.name)) == 1
        server.command("SCRIPT", "FLUSH")
        assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_fences_increase_over_flushall_however_fast_it_goes(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    fences = []
    with server.wire() as wire:
        for _ in range(30):
            grant = ann.do(lock.acquire)
            fences.append(grant.fence)
            assert ann.do(grant.release) is True
            wire.ask("FLUSHALL")
    assert fences == sorted(set(fences))
