"""A Cluster that changes: nodes join and leave, slots move key by key, addresses are translated."""

import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
import valkey.asyncio.cluster
import valkey.cluster

from interlock.api.connect import open_store
from interlock.core.errors import InvalidArgument, StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, StoreFixture
from interlock.testing.waiting import eventually, lasting
from tests.servers import RedisCluster, RedisServer
from tests.support.redis_helpers import client_ids, connect_to, for_interface, is_of_use, key_of, place_of

AT_ONCE = 4.0  # seconds; a waiter without a notification polls after five
LIBRARIES = {
    "redis": (redis.cluster.RedisCluster, redis.asyncio.cluster.RedisCluster),
    "valkey": (valkey.cluster.ValkeyCluster, valkey.asyncio.cluster.ValkeyCluster),
}


@pytest.fixture(autouse=True)
def no_litter() -> Iterator[None]:
    """Find connections that a test left open here, not in a later test."""
    yield
    gc.collect()


@pytest.fixture
def place(cluster: RedisCluster) -> StoreFixture:
    """The Cluster."""
    return place_of(cluster.url)


@pytest.fixture
def guest(cluster: RedisCluster) -> Iterator[RedisServer]:
    """An additional node without slots, which is removed again."""
    node = cluster.add()
    yield node
    if node in cluster.nodes:
        cluster.remove(node)


# -- the map changes -------------------------------------------------------------------------------------


def subscribed_at(world: ContractWorld, node: RedisServer) -> Any:
    """Return a connection that subscribes at this node; try until the random choice is this node."""
    ann = world.actor()
    with node.wire() as wire:
        for _ in range(60):
            locks = world.connect()
            ann.do(locks.doctor)
            if client_ids(wire, "pubsub"):
                return locks
            ann.do(locks.close)
    raise AssertionError("nobody subscribed at that node")


def test_a_subscription_at_a_node_that_left_is_made_anew(
    world: ContractWorld, cluster: RedisCluster, guest: RedisServer
) -> None:
    cluster.move("{a slot}", guest)
    there = subscribed_at(world, guest)
    here = world.connect()
    ann, bob = world.actors(2)
    grant = ann.do(here.lock(world.name).acquire)
    waiting = world.in_line(bob.start, there.lock(world.name).acquire)
    cluster.remove(guest)  # it goes on, and would confirm every subscription
    with guest.wire() as wire:
        eventually(lambda: not client_ids(wire, "pubsub"))
    for _ in range(3):
        with lasting(0.0, AT_ONCE):
            assert ann.do(grant.release) is True
            later = waiting.result(20)
        grant = ann.do(later.release) and ann.do(here.lock(world.name).acquire)
        waiting = world.in_line(bob.start, there.lock(world.name).acquire)
    assert ann.do(grant.release) is True
    assert bob.do(waiting.result(20).release) is True


def test_claims_and_doctor_see_a_node_that_came(
    world: ContractWorld, cluster: RedisCluster, guest: RedisServer, locks: Any, ann: Actor
) -> None:
    others = world.connect()
    grant = ann.do(others.lock(world.name).acquire)
    assert [view.name for view in ann.do(locks.claims)] == [world.name]
    cluster.move(key_of(world.name), guest)
    assert [view.name for view in ann.do(locks.claims)] == [world.name]
    assert [check.name for check in ann.do(locks.doctor)].count("version") == len(cluster.nodes)
    assert ann.do(grant.release) is True
    assert ann.do(locks.claims) == []


def test_whoever_waits_looks_when_the_map_changes(
    world: ContractWorld, cluster: RedisCluster, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(world.name, renew=False).acquire)
    waiting = world.in_line(bob.start, world.connect().lock(world.name).acquire)
    line = key_of(world.name)
    cluster.node_of(line).command(
        "HDEL", line, "using", f"@{grant.id}"
    )  # as if the message of a hand-over were lost with its node
    with lasting(0.0, AT_ONCE):
        cluster.move("{another slot}")
        later = waiting.result(20)
    assert bob.do(later.release) is True
    assert ann.do(grant.release) is False


# -- addresses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", LIBRARIES)
def test_locks_work_over_the_clients_of_both_libraries(
    world: ContractWorld, cluster: RedisCluster, library: str
) -> None:
    node = cluster.nodes[0]
    with client_of(world, library, host=node.host, port=node.port, decode_responses=True) as client:
        is_of_use(world, connect_to(world, client))
        assert world.actor().do(client.set, "the program's own", "value")
    is_of_use(world, connect_to(world, cluster.url.replace("redis", library)))


def test_a_node_that_knows_no_host_means_its_own(world: ContractWorld, cluster: RedisCluster, locks: Any) -> None:
    is_of_use(world, locks)
    for node in cluster.nodes:
        node.command("CONFIG", "SET", "cluster-preferred-endpoint-type", "unknown-endpoint")
    try:
        cluster.move(key_of(world.name))
        is_of_use(world, locks)  # MOVED 1234 :6379
        for library in LIBRARIES:
            is_of_use(world, connect_to(world, cluster.url.replace("redis", library)))
    finally:
        for node in cluster.nodes:
            node.command("CONFIG", "SET", "cluster-preferred-endpoint-type", "ip")


@pytest.mark.parametrize("library", LIBRARIES)
def test_announced_addresses_are_translated_everywhere(
    world: ContractWorld, cluster: RedisCluster, library: str
) -> None:
    announced = dict(enumerate(cluster.nodes, 1))  # ports that can't be used

    def remap(address: tuple[str, int]) -> tuple[str, int]:
        return address[0], announced[address[1]].port

    for number, node in announced.items():
        node.command("CONFIG", "SET", "cluster-announce-port", number)
    try:
        eventually(lambda: all(ports_seen_by(node) == {1, 2, 3} for node in cluster.nodes))
        node = cluster.nodes[0]
        with client_of(world, library, host=node.host, port=node.port, address_remap=remap) as client:
            locks = connect_to(world, client)
            is_of_use(world, locks)
            source = announced[node_seen_for(cluster, key_of(world.name))]
            target = next(each for each in cluster.nodes if each is not source)
            with cluster.migrating(key_of(world.name), target, source) as move:
                move.rest()
                is_of_use(world, locks)  # ASK
            is_of_use(world, locks)  # MOVED
            assert len(world.actor().do(locks.claims)) == 0
            world.actor().do(locks.close)
    finally:
        for node in cluster.nodes:
            node.command("CONFIG", "SET", "cluster-announce-port", 0)
        eventually(lambda: all(ports_seen_by(node) == set(ports_of(cluster)) for node in cluster.nodes))


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_a_url_names_several_nodes_of_which_the_first_is_down(
    world: ContractWorld, cluster: RedisCluster, scheme: str
) -> None:
    with nobody_there() as port:
        hosts = ",".join(f"127.0.0.1:{each}" for each in (port, *ports_of(cluster)))
        is_of_use(world, connect_to(world, f"{scheme}+cluster://{hosts}?socket_timeout=5"))
        with pytest.raises(StoreError, match=f":{port}"):
            is_of_use(world, connect_to(world, f"{scheme}+cluster://127.0.0.1:{port},localhost:{port}"))


@pytest.mark.parametrize("tasks", [False, True])
def test_a_url_without_a_sensible_host_is_refused(tasks: bool) -> None:
    with pytest.raises(InvalidArgument, match="one or more hosts"):
        open_store("redis+cluster://127.0.0.1:1,:2x", tasks=tasks)


@contextmanager
def client_of(world: ContractWorld, library: str, **how: Any) -> Iterator[Any]:
    """Make a client in the colour of a world, and close it."""
    ann = world.actor()
    make: Callable[..., Any] = for_interface(world, *LIBRARIES[library])
    client = ann.do(lambda: make(**how))
    try:
        yield client
    finally:
        ann.do(getattr(client, for_interface(world, "close", "aclose")))


@contextmanager
def nobody_there() -> Iterator[int]:
    """Reserve a port on which nothing listens."""
    with socket.socket() as keeper:
        keeper.bind(("127.0.0.1", 0))
        yield keeper.getsockname()[1]


def ports_of(cluster: RedisCluster) -> list[int]:
    """Return the nodes' ports."""
    return [node.port for node in cluster.nodes]


def ports_seen_by(node: RedisServer) -> set[int]:
    """Return the nodes' ports, according to one of them."""
    return {int(owner[1]) for _, _, owner, *_ in node.command("CLUSTER", "SLOTS")}


def node_seen_for(cluster: RedisCluster, key: str) -> int:
    """Return the announced port of the node that serves a key."""
    slot = cluster.nodes[0].command("CLUSTER", "KEYSLOT", key)
    slots = cluster.nodes[0].command("CLUSTER", "SLOTS")
    return next(int(owner[1]) for first, last, owner, *_ in slots if first <= slot <= last)
