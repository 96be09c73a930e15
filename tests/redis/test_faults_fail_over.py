"""A Cluster whose slots move, Sentinels that fail over, TLS."""

import gc
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind, StoreFixture
from interlock.testing.waiting import eventually, moment, since, throughout, until_renewed
from tests.servers import RedisCluster, RedisSentinel, RedisServer, TlsFiles, need, serving
from tests.support.client_actors import hand_over
from tests.support.redis_helpers import SERVERS, is_of_use, key_of, one_after_another, place_of

FAIL_OVER = 30.0  # seconds
TTL = 3.0  # seconds


@pytest.fixture(autouse=True)
def no_litter() -> Iterator[None]:
    """Find connections that a test left open here, not in a later test."""
    yield
    gc.collect()


# -- Cluster ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=["valkey"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """A Cluster of three nodes; it takes two seconds to start, so tests use the other kind only where it matters."""
    yield from serving(request.param, lambda: RedisCluster(3, request.param))


@pytest.fixture
def place(request: pytest.FixtureRequest) -> StoreFixture:
    """The Cluster; the tests on Sentinels and TLS have their own places."""
    return place_of(request.getfixturevalue("cluster").url)


def test_every_kind_of_lock_works_on_a_cluster(
    world: ContractWorld, cluster: RedisCluster, locks: Any, kind: LockKind
) -> None:
    for _ in range(4):  # names on different nodes
        is_of_use(world, locks, kind, world.fresh_name())


def test_locks_of_several_nodes_are_taken_together(world: ContractWorld, cluster: RedisCluster, locks: Any) -> None:
    names = [world.fresh_name() for _ in range(8)]
    assert len({cluster.node_of(key_of(name)).port for name in names}) > 1
    ann = world.actor()
    grants = ann.do(locks.all(*names).acquire)
    assert len(world.eye.claims()) >= len(names)
    ann.do(grants.release)
    assert all(world.nothing_left(name) for name in names)


@pytest.mark.parametrize("cluster", SERVERS, indirect=True)
def test_a_lock_whose_slot_moves_is_kept_and_handed_over(
    world: ContractWorld, cluster: RedisCluster, locks: Any, ann: Actor, bob: Actor
) -> None:
    lost: list[Any] = []
    grant = ann.do(locks.lock(world.name, ttl=3, on_lost=lost.append).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name, ttl=3).acquire)
    moved = cluster.move(key_of(world.name))
    until_renewed(grant)  # renewed, by the new node
    assert not waiting.done()
    assert ann.do(grant.renew) is True  # at the new node
    assert moved.command("EXISTS", key_of(world.name)) == 1
    hand_over(ann, grant, bob, waiting)
    assert lost == []
    assert world.nothing_left()


def test_a_lock_is_used_while_its_slot_moves(
    world: ContractWorld, cluster: RedisCluster, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    with cluster.moving(key_of(world.name)):
        waiting = bob.start(locks.lock(world.name).acquire)
        throughout(0.3, lambda: not waiting.done())  # in line, or tries again
    hand_over(ann, grant, bob, waiting)
    assert world.nothing_left()


def test_the_doctor_looks_at_the_clocks_of_all_nodes(world: ContractWorld, cluster: RedisCluster) -> None:
    checks = [check for check in world.actor().do(world.connect().doctor) if check.name == "clock"]
    assert [check.status for check in checks] == ["ok"] * 3


def test_a_node_that_restarts_is_found_again(world: ContractWorld, cluster: RedisCluster, ann: Actor) -> None:
    lock = world.connect().lock(world.name)
    first = ann.do(lock.acquire)
    assert ann.do(first.release) is True
    cluster.node_of(key_of(world.name)).restart()
    cluster.until_whole()
    second = ann.do(lock.acquire)
    assert second.fence > first.fence
    assert ann.do(second.release) is True


# -- Sentinels -------------------------------------------------------------------------------------------


@pytest.fixture
def watched(request: pytest.FixtureRequest) -> Iterator[RedisSentinel]:
    """A master with a replica and three Sentinels; it can be cut off from them."""
    yield from serving(request.param, lambda: RedisSentinel(request.param, login=True))


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
@pytest.mark.parametrize(("watched", "by_kill"), [("valkey", True), ("redis", False)], indirect=["watched"])
def test_after_a_fail_over_locks_go_on_and_fences_increase(
    watched: RedisSentinel, by_kill: bool, sync_or_async: str
) -> None:
    with closing(ContractWorld(place_of(watched.url), sync_or_async)) as world:
        locks = world.connect()
        ann, *others = world.actors(3)
        old = ann.do(locks.lock(world.name, ttl=FAIL_OVER).acquire)
        waiting = [each.start(locks.lock(world.name, ttl=FAIL_OVER).acquire) for each in others]
        world.until_waiting(2)
        watched.replicate()
        watched.fail_over(by_kill=by_kill)
        ann.do(old.release)
        fences = [grant.fence for grant in one_after_another(others, waiting)]
        assert old.fence < fences[0] < fences[1]
        assert ann.do(ann.do(locks.lock(world.name).acquire).release) is True
        assert world.nothing_left()


DIVIDED = pytest.mark.parametrize(
    ("watched", "sync_or_async"), [("valkey", "threads"), ("redis", "tasks")], indirect=["watched"]
)


@DIVIDED
def test_a_returned_old_master_is_left_at_the_next_renewal(watched: RedisSentinel, sync_or_async: str) -> None:
    with closing(ContractWorld(place_of(watched.url), sync_or_async)) as world:
        ann, cat = world.actors(2)
        locks = world.connect()
        kept = ann.do(locks.lock(world.name, ttl=FAIL_OVER).acquire)
        watched.replicate()
        old = watched.cut_off()
        old.pause()
        watched.until_promoted(old)
        old.resume()
        held = cat.do(world.connect().lock("free").acquire)

        def is_refused() -> bool:
            grant = ann.do(locks.lock("free").acquire, blocking=False)
            return grant is None or not ann.do(grant.release)

        eventually(is_refused, within=FAIL_OVER)
        assert kept.held
        assert ann.do(kept.release) is True
        assert cat.do(held.release) is True
        assert ann.do(locks.lock("free").acquire).fence > held.fence


@DIVIDED
def test_a_holder_on_a_replaced_master_loses_within_its_lease(watched: RedisSentinel, sync_or_async: str) -> None:
    with closing(ContractWorld(place_of(watched.url), sync_or_async)) as world:
        ann, bob = world.actors(2)
        lost: list[Any] = []
        locks = world.connect()
        ann.do(ann.do(locks.lock("another").acquire).release)
        old = watched.cut_off()
        grant = ann.do(locks.lock(world.name, ttl=TTL, on_lost=lost.append).acquire)
        watched.until_promoted(old)
        promoted = moment()
        later = bob.do(world.connect().lock(world.name).acquire)
        eventually(lambda: grant.lost, within=2 * TTL)
        assert since(promoted) < TTL + 0.5
        eventually(lambda: lost == [grant])
        assert old.command("EXISTS", key_of(world.name)) == 1  # it would have gone on
        assert later.fence > grant.fence
        assert ann.do(grant.release) is False
        assert bob.do(later.release) is True


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
@pytest.mark.parametrize("watched", ["valkey"], indirect=True)
def test_locks_go_on_while_no_sentinel_answers(
    watched: RedisSentinel, sync_or_async: str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(ContractWorld(place_of(watched.url), sync_or_async)) as world:
        ann = world.actor()
        lock = world.connect().lock(world.name, ttl=TTL)
        grant = ann.do(lock.acquire)
        watched.sentinels[0].pause()
        for each in watched.sentinels[1:]:
            each.kill()
        throughout(1.5 * TTL, lambda: not grant.lost)  # renewed
        assert ann.do(grant.release) is True
        for _ in range(20):
            assert ann.do(ann.do(lock.acquire, timeout=1).release) is True
        said = [each.message for each in caplog.records if "No Sentinel" in each.message]
        assert said == ["No Sentinel of 'mymaster' replies, so a new primary would go unnoticed."]


@pytest.mark.parametrize("watched", ["valkey"], indirect=True)
@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_a_master_unknown_to_the_sentinels_is_a_clear_error(watched: RedisSentinel, sync_or_async: str) -> None:
    with closing(ContractWorld(place_of(watched.url.replace("mymaster", "nobody")), sync_or_async)) as world:
        with pytest.raises(StoreError, match="nobody") as caught:
            world.actor().do(world.connect().lock(world.name).acquire, timeout=2)
        assert len(str(caught.value)) < 200


# -- TLS -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def enciphered() -> Iterator[RedisServer]:
    """A server that speaks TLS only."""
    need("tls")
    yield from serving("redis", lambda: RedisServer("redis", tls=True))


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_every_kind_of_lock_works_over_tls(enciphered: RedisServer, sync_or_async: str, kind: LockKind) -> None:
    with closing(ContractWorld(place_of(enciphered.url), sync_or_async)) as world:
        is_of_use(world, world.connect(), kind)


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_a_certificate_of_a_stranger_is_a_clear_error(
    enciphered: RedisServer, sync_or_async: str, tmp_path: Any
) -> None:
    stranger = TlsFiles(tmp_path / "stranger")
    base = enciphered.url.partition("?")[0]
    with closing(ContractWorld(place_of(f"{base}?ssl_ca_certs={stranger.authority}"), sync_or_async)) as world:
        with pytest.raises(StoreError, match=r"(?i)certificate"):
            world.actor().do(world.connect().lock(world.name).acquire, timeout=2)


@pytest.mark.parametrize("sync_or_async", ["threads", "tasks"])
def test_speaking_plainly_to_a_server_of_tls_is_a_clear_error(enciphered: RedisServer, sync_or_async: str) -> None:
    with closing(ContractWorld(place_of(f"redis://{enciphered.host}:{enciphered.port}"), sync_or_async)) as world:
        with pytest.raises(StoreError, match=str(enciphered.port)):
            world.actor().do(world.connect().lock(world.name).acquire, timeout=2)
