"""Another primary behind the same address: a name, a virtual address, a balancer."""

import pytest

import interlock
from interlock.core.claims import SEPARATOR
from interlock.core.errors import StoreError
from interlock.stores.redis.keys import line_of
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually
from tests.servers import Proxy, RedisCluster, RedisServer
from tests.support.client_actors import hand_over
from tests.support.redis_helpers import client_ids, connect_to, key_of


def test_a_new_primary_ends_the_subscription_at_the_old_one(
    world: ContractWorld, server: RedisServer, replica: RedisServer, proxy: Proxy, ann: Actor, bob: Actor
) -> None:
    theirs = connect_to(world, proxy.url)
    grant = ann.do(theirs.lock(world.name).acquire)
    waiting = world.in_line(bob.start, theirs.lock(world.name).acquire)
    with server.wire() as wire:
        assert len(client_ids(wire, "pubsub")) == 1
        assert wire.ask("WAIT", 1, 5000) == 1
    eventually(lambda: int(replica.command("HEXISTS", key_of(world.name), "queue")) == 1)
    replica.command("REPLICAOF", "NO", "ONE")
    proxy.redirect(replica.host, replica.port)
    with server.wire() as wire:  # the old one stays, and so does the subscription
        for number in client_ids(wire, "normal"):
            wire.ask("CLIENT", "KILL", "ID", number)
    assert ann.do(grant.renew) is True
    with replica.wire() as wire:
        eventually(lambda: client_ids(wire, "pubsub"))
    hand_over(ann, grant, bob, waiting)


def test_a_grant_needs_the_wanted_number_of_replicas(
    world: ContractWorld, server: RedisServer, replica: RedisServer, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, f"{server.url}?replicas=1&socket_timeout=4")
    with server.wire() as wire:  # a new replica counts after its first acknowledgement
        wire.ask("SET", "written", "1")
        assert wire.ask("WAIT", 1, 10_000) == 1
    grant = ann.do(locks.lock(world.name).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name).acquire)
    assert ann.do(grant.release) is True
    later = waiting.result(10)  # a hand-over is confirmed too
    assert later.fence > grant.fence
    waiting = world.in_line(ann.start, locks.lock(world.name).acquire)
    replica.pause()
    assert bob.do(later.release) is True
    with pytest.raises(StoreError, match="0 of 1 replicas"):
        waiting.result(10)
    with pytest.raises(StoreError, match=r"released.*\?replicas="):
        bob.do(locks.lock(world.name).acquire)
    assert world.eye.claims() == []
    replica.resume()
    assert bob.do(locks.lock(world.name).acquire).fence > later.fence


def test_a_node_that_refuses_asking_leaves_no_stray_reply() -> None:
    with RedisCluster(2) as cluster:
        for node in cluster.nodes:
            node.command("ACL", "SETUSER", "app", "on", ">app", "~*", "&*", "+@all", "-asking")
        with (
            interlock.connect(cluster.url) as others,
            interlock.connect(cluster.url.replace("://", "://app:app@")) as locks,
        ):
            names = [f"name{number}" for number in range(40)]
            homes = {name: cluster.node_of(line_of(SEPARATOR + name)) for name in names}
            moved = next(name for name in names if homes[name] is cluster.nodes[0])
            there = [name for name in names if homes[name] is cluster.nodes[1]][:6]
            held = [others.lock(name).acquire() for name in there]
            with cluster.moving(line_of(SEPARATOR + moved)), pytest.raises(StoreError, match="asking"):
                locks.lock(moved, timeout=0.3).__enter__()
            assert [locks.lock(name).acquire(timeout=0) for name in there] == [None] * len(there)
            assert all(grant is not None and grant.release() for grant in held)
