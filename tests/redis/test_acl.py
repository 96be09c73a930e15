"""The rights that the error recommends are enough for everything: the server's ACL log has no refusal."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from interlock.stores.redis import errors as acl
from interlock.stores.redis.resp import ReplyError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, until_renewed
from tests.servers import RedisCluster, RedisServer
from tests.support.redis_helpers import connect_to, is_of_use, place_of, url_of, user

LINE = [*acl.SERVER.split(), acl.DATABASE]


def refused(server: RedisServer) -> set[str]:
    """Return the commands that the server refused, without `client|setinfo`: libraries may fail to set names."""
    entries = [dict(zip(entry[::2], entry[1::2], strict=True)) for entry in server.command("ACL", "LOG")]
    return {entry["object"] for entry in entries} - {"client|setinfo"}


@pytest.fixture
def rights(server: RedisServer) -> Iterator[None]:
    """A user with the recommended rights; the server must refuse it nothing."""
    user(server, *LINE)
    yield
    assert refused(server) == set()


@pytest.mark.usefixtures("rights")
def test_to_lock_wait_renew_look_and_evict(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    locks = connect_to(world, url_of(server))
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED).acquire)
    waiting = world.in_line(bob.start, kind.rival(locks, world.name).acquire)
    until_renewed(grant)
    assert len(ann.do(locks.claims)) == len(ann.do(locks.claims, world.name)) == 2
    assert ann.do(grant.release) is True
    theirs = waiting.result(10)
    assert bob.do(theirs.renew) is True
    assert ann.do(locks.evict, world.name) == 1
    assert bob.do(theirs.release) is False


@pytest.mark.usefixtures("rights")
def test_to_wait_for_another_connection_and_to_give_up(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    ours, theirs = connect_to(world, url_of(server)), connect_to(world, url_of(server))
    grant = ann.do(kind.rival(ours, world.name).acquire)
    assert bob.do(kind.make(theirs, world.name).acquire, timeout=0.2) is None
    waiting = world.in_line(bob.start, kind.make(theirs, world.name).acquire)
    assert ann.do(grant.release) is True
    assert bob.do(waiting.result(10).release) is True
    assert world.nothing_left()


@pytest.mark.usefixtures("rights")
def test_the_doctor_sees_all(world: ContractWorld, server: RedisServer) -> None:
    locks = connect_to(world, url_of(server))
    checks = {check.name: check for check in world.actor().do(locks.doctor)}
    assert {name for name, check in checks.items() if check.status == "fail"} == set()
    assert checks["messages"].status == "ok"
    assert "forbids" not in " ".join(check.detail for check in checks.values())


@pytest.mark.parametrize("right", LINE[2:])
def test_no_right_is_recommended_in_vain(server: RedisServer, right: str) -> None:
    """Every supported server knows each command: older servers reject a rule such as `+client|setinfo`."""
    user(server, right)


@pytest.mark.parametrize("sync_or_async", [THREADS, TASKS])
def test_on_a_cluster(cluster: RedisCluster, sync_or_async: str) -> None:
    for node in cluster.nodes:
        user(node, *acl.SERVER.split(), *acl.CLUSTER.split())
    place = f"redis+cluster://app:secret@127.0.0.1:{cluster.nodes[0].port}"
    with closing(ContractWorld(place_of(place), sync_or_async)) as world:
        locks = world.connect()
        ann = world.actor()
        for number in range(6):  # on several nodes
            is_of_use(world, locks, name=f"book:{number}")
        assert ann.do(locks.claims) == []
        checks = {check.name: check for check in ann.do(locks.doctor)}
        assert [check for check in checks.values() if check.status == "fail"] == []
        assert "rights" not in checks
        assert checks["messages"].status == "ok"
    assert [refused(node) for node in cluster.nodes] == [set()] * 3


# -- Sentinel, and what is missing -------------------------------------------------------------------------


def test_who_may_not_publish_releases_all_the_same(world: ContractWorld, server: RedisServer) -> None:
    user(server, *LINE, "-publish")
    ours, theirs = connect_to(world, url_of(server)), connect_to(world, url_of(server))
    holder, *others = world.actors(3)
    grant = holder.do(ours.lock(world.name, ttl=2).acquire)
    for number, ann in enumerate(others):
        waiting = world.in_line(ann.start, (theirs, ours)[number].lock(world.name, ttl=2).acquire)
        assert holder.do(grant.release) is True
        holder, grant = ann, waiting.result(20)  # by its own look
    assert holder.do(grant.release) is True
    assert world.nothing_left()


FORBIDDEN = {
    "-info": ("rights", "warn", "info"),
    "-scan": ("rights", "warn", "scan"),
    "-hdel -hmget": ("round trip", "fail", "hmget"),
    "-eval": ("round trip", "fail", "eval"),
    "-subscribe": ("server", "fail", "subscribe"),
    "-publish": ("server", "fail", "publish"),
    "resetchannels": ("server", "fail", "channel"),
    "resetkeys ~other:*": ("round trip", "fail", "key"),
}


@pytest.mark.parametrize("rules", FORBIDDEN)
def test_the_doctor_names_forbidden_commands_and_needed_rights(
    world: ContractWorld, server: RedisServer, ann: Actor, rules: str
) -> None:
    name, status, told = FORBIDDEN[rules]
    server.command("SCRIPT", "FLUSH")
    user(server, *LINE, *rules.split())
    checks = {check.name: check for check in ann.do(connect_to(world, url_of(server)).doctor)}
    assert checks[name].status == status
    assert told in checks[name].detail.lower()
    assert acl.SERVER in checks[name].detail


@pytest.mark.parametrize("line", [acl.SERVER, acl.DATABASE, acl.CLUSTER, acl.SENTINEL_MASTERS])
def test_the_tested_rights_are_those_of_the_page_and_the_error(line: str) -> None:
    page = " ".join((Path(__file__).parents[2] / "docs/stores/redis.md").read_text().split())
    assert line in page
    assert line in str(acl.refusal(ReplyError("NOPERM no"), "the server"))
