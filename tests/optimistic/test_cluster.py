"""Transactions on a cluster, in one slot and in moved slots; and on a master of Sentinel."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.testing.waiting import eventually
from tests.servers import RedisCluster, RedisSentinel, need, serving
from tests.support.optimistic_interfaces import Kind

LIBRARIES = [Kind("redis"), Kind("redis", decode=True, protocol=3), Kind("valkey"), Kind("valkey", protocol=3)]


@pytest.fixture(scope="module")
def whole_cluster() -> Iterator[RedisCluster]:
    yield from serving("valkey", RedisCluster)


@pytest.fixture
def cluster(whole_cluster: RedisCluster) -> RedisCluster:
    """A cluster without keys."""
    for node in whole_cluster.nodes:
        node.command("FLUSHALL")
    return whole_cluster


@pytest.fixture(params=LIBRARIES, ids=str)
def client(request: pytest.FixtureRequest, interface: Any, cluster: RedisCluster) -> Any:
    """A client of the cluster, of each library."""
    return interface.cluster(cluster.url.replace("redis+cluster", request.param.library), request.param)


def plain(interface: Any, cluster: RedisCluster) -> Any:
    """A client of redis-py."""
    return interface.cluster(cluster.url.replace("redis+cluster", "redis"))


async def increment(tx: Any) -> int:
    """Increment a number, and append it to a list in the same slot."""
    number = int(await tx.get("{book}:number") or 0) + 1
    tx.set("{book}:number", number)
    tx.rpush("{book}:log", number)
    return number


def test_it_is_done_on_the_node_of_the_keys(interface: Any, client: Any, cluster: RedisCluster) -> None:
    async def function(tx: Any) -> int:
        number = await increment(tx)
        if tx.number == 1:
            cluster.node_of("{book}").command("SET", "{book}:number", 7)
        return number

    assert interface.transact(client, function) == 8
    assert interface.transact(client, increment, "{book}:log") == 9
    assert cluster.node_of("{book}").command("LRANGE", "{book}:log", 0, -1) == ["8", "9"]


@pytest.mark.parametrize("second", ["GET", "WATCH"])
def test_keys_of_different_slots_are_refused_with_advice(interface: Any, cluster: RedisCluster, second: str) -> None:
    async def function(tx: Any) -> None:
        await tx.get("one")
        await (tx.get("another") if second == "GET" else tx.watch("another"))

    message = r"'another' is in slot \d+ of the cluster, 'one' in slot \d+\. All keys .* share a slot.*hash tag"
    with pytest.raises(InvalidArgument, match=message):
        interface.transact(plain(interface, cluster), function)
    with pytest.raises(InvalidArgument, match=message):
        interface.transact(plain(interface, cluster), increment, "one", "another")


@pytest.mark.parametrize("number", range(3))
def test_a_write_to_another_slot_is_refused_with_advice(interface: Any, cluster: RedisCluster, number: int) -> None:
    """Some of these slots are on the same node, some are not: the server's errors differ."""

    async def function(tx: Any) -> None:
        await tx.get("{book}")
        tx.set("{book}", 1)
        tx.set(f"another {number}", 1)

    with pytest.raises(InvalidArgument, match=r"share a slot.*hash tag"):
        interface.transact(plain(interface, cluster), function)
    assert cluster.node_of("{book}").command("GET", "{book}") is None


def test_on_a_cluster_a_transaction_needs_a_key(interface: Any, cluster: RedisCluster) -> None:
    async def function(tx: Any) -> Any:
        return tx.incr("{book}:number")

    with pytest.raises(InvalidArgument, match=r"Give one, e\.g\. transact"):
        interface.transact(plain(interface, cluster), function)
    assert interface.transact(plain(interface, cluster), function, "{book}:number") == 1


def test_a_slot_that_has_moved_is_found_again(interface: Any, client: Any, cluster: RedisCluster) -> None:
    assert interface.transact(client, increment) == 1
    cluster.move("{book}")
    assert interface.transact(client, increment) == 2


def test_a_slot_that_moves_between_watch_and_commit_is_followed(
    interface: Any, client: Any, cluster: RedisCluster
) -> None:
    numbers = []

    async def function(tx: Any) -> int:
        numbers.append(tx.number)
        number = await increment(tx)
        if tx.number == 1:
            cluster.move("{book}")
        return number

    interface.transact(client, increment)
    assert interface.transact(client, function) == 2
    assert numbers == [1, 2]
    assert cluster.node_of("{book}").command("LRANGE", "{book}:log", 0, -1) == ["1", "2"]


def test_a_client_that_knows_nothing_of_clusters_is_told_to(interface: Any, cluster: RedisCluster) -> None:
    others = [node for node in cluster.nodes if node is not cluster.node_of("{book}")]
    client = interface.client(others[0].url)
    with pytest.raises(StoreError, match=r"node of a cluster .*Use the library's cluster client"):
        interface.transact(client, increment)


def test_a_nodes_lost_reply_is_an_unknown_outcome_not_repeated(
    interface: Any, client: Any, cluster: RedisCluster
) -> None:
    """The cluster's client would repeat the commit on a connection without a WATCH."""
    node = cluster.node_of("{book}")

    async def function(tx: Any) -> None:
        await increment(tx)
        node.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    interface.transact(client, increment)
    with pytest.raises(UnknownOutcome):
        interface.transact(client, function)
    assert node.command("GET", "{book}:number") == "1"


def incremented(interface: Any, client: Any) -> int:
    """Increment; return the number, or 0 if the store fails."""
    with suppress(StoreError):
        return int(interface.transact(client, increment))
    return 0


@pytest.mark.parametrize("kind", LIBRARIES[::2], ids=str)
def test_a_node_that_is_down_is_told_and_found_again(interface: Any, kind: Kind) -> None:
    need("valkey")
    with RedisCluster() as cluster:
        client = interface.cluster(cluster.url.replace("redis+cluster", kind.library), kind)
        interface.transact(client, increment)
        node = cluster.node_of("{book}")
        node.kill()
        for _ in range(2):
            with pytest.raises(StoreError, match=r"unreachable|The connection failed"):
                interface.transact(client, increment)
        node.start()
        assert eventually(lambda: incremented(interface, client)) == 1  # nothing was saved


def test_a_transaction_follows_sentinel_to_the_new_primary(interface: Any) -> None:
    need("valkey")
    from importlib import import_module

    module = import_module("redis.sentinel" if interface.name == "threads" else "redis.asyncio.sentinel")
    with RedisSentinel() as sentinel:
        hosts = [(sentinel.host, sentinel.port) for sentinel in sentinel.sentinels]
        manager = module.Sentinel(hosts)
        client = manager.master_for(sentinel.name)
        try:
            assert interface.transact(client, increment) == 1
            eventually(lambda: all(server.command("EXISTS", "{book}:number") == 1 for server in sentinel.servers))
            sentinel.fail_over(by_kill=True)

            assert eventually(lambda: incremented(interface, client)) == 2
            assert sentinel.master.command("LRANGE", "{book}:log", 0, -1) == ["1", "2"]
        finally:
            for each in (client, *manager.sentinels):
                interface.runner.run(each.aclose()) if interface.name == "tasks" else each.close()
