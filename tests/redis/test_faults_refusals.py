"""The server refuses: no memory, read-only, wrong password, forbidden by its ACL, a key of a wrong type."""

import re
from typing import Any

import pytest

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import eventually, throughout
from tests.servers import RedisServer
from tests.support.redis_helpers import connect_to, key_of, one_after_another, servers_with, user

SECRET = "open sesame"


GUARDED = pytest.mark.parametrize("server", servers_with(password=SECRET), indirect=True)


def refusal(world: ContractWorld, locks: Any, name: str = "") -> str:
    """Return the text of the error that acquiring raises."""
    with pytest.raises(StoreError) as caught:
        world.actor().do(locks.lock(name or world.name).acquire, timeout=2)
    return str(caught.value)


# -- memory, replicas -----------------------------------------------------------------------------------


def test_a_server_without_memory_is_a_clear_temporary_error(
    world: ContractWorld, server: RedisServer, kind: LockKind, ann: Actor
) -> None:
    lock = kind.make(world.connect(), world.name)
    server.command("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreError, match=r"(?i)memory"):
        ann.do(lock.acquire)
    server.command("CONFIG", "SET", "maxmemory", 0)
    grant = ann.do(lock.acquire)
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_holders_renew_and_release_without_server_memory(
    world: ContractWorld, server: RedisServer, ann: Actor
) -> None:
    grant = ann.do(world.connect().lock(world.name).acquire)
    server.command("CONFIG", "SET", "maxmemory", 1)
    assert ann.do(grant.renew) is True
    assert ann.do(grant.release) is True
    server.command("CONFIG", "SET", "maxmemory", 0)
    assert world.nothing_left()


def test_waiters_keep_their_places_without_server_memory(world: ContractWorld, server: RedisServer) -> None:
    ann, *others = world.actors(3)
    grant = ann.do(world.connect().lock(world.name, ttl=1.5).acquire)
    waiting = [world.in_line(each.start, world.connect().lock(world.name, ttl=1.5).acquire) for each in others]
    server.command("CONFIG", "SET", "maxmemory", 1)
    throughout(2.5, lambda: not any(each.done() for each in waiting))  # longer than their leases
    assert "maxmemory" in refusal(world, world.connect(), world.fresh_name())
    assert ann.do(grant.release) is True
    fences = [each.fence for each in one_after_another(others, waiting)]
    assert grant.fence < fences[0] < fences[1]
    server.command("CONFIG", "SET", "maxmemory", 0)
    assert world.nothing_left()


def test_a_read_only_replica_is_a_clear_error(world: ContractWorld, replica: RedisServer) -> None:
    text = refusal(world, connect_to(world, replica.url))
    assert "replica" in text.lower()
    assert str(replica.port) in text


def test_a_primary_that_becomes_a_replica_is_a_clear_error(
    world: ContractWorld, server: RedisServer, ann: Actor
) -> None:
    lock = world.connect().lock(world.name)
    grant = ann.do(lock.acquire)
    server.command("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(StoreError, match=r"(?i)replica"):
        ann.do(grant.release)
    with pytest.raises(StoreError, match=r"(?i)replica"):
        ann.do(lock.acquire, timeout=0.5)
    server.command("REPLICAOF", "NO", "ONE")
    assert ann.do(grant.release) is True


@pytest.mark.parametrize("how", [{"blocking": False}, {"timeout": 1}, {}], ids=["a try", "a wait", "without a limit"])
def test_a_grant_that_no_replica_can_confirm_leaves_nothing(
    world: ContractWorld, server: RedisServer, ann: Actor, how: dict[str, Any]
) -> None:
    """The grant is made before WAIT is refused: no right to it, or a proxy without it."""
    locks = connect_to(world, user(server, "~interlock:*", "&interlock:*", "+@all", "-wait") + "?replicas=1")
    with pytest.raises(StoreError, match="wait"):
        ann.do(locks.lock(world.name).acquire, **how)
    assert world.nothing_left()


# -- rights ----------------------------------------------------------------------------------------------


@GUARDED
def test_a_wrong_password_is_an_error_that_does_not_repeat_it(world: ContractWorld, server: RedisServer) -> None:
    url = f"redis://:wrong-word@{server.host}:{server.port}"
    text = refusal(world, connect_to(world, url))
    assert "password" in text.lower()
    assert "wrong-word" not in text


@GUARDED
def test_a_missing_password_is_a_clear_error(world: ContractWorld, server: RedisServer) -> None:
    text = refusal(world, connect_to(world, f"redis://{server.host}:{server.port}"))
    assert "authentication" in text.lower() or "password" in text.lower()


NEEDED = ("~interlock:*", "&interlock:*")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ((*NEEDED, "-evalsha"), "evalsha"),
        ((*NEEDED, "-evalsha", "-eval"), "eval"),
        (("~other:*", "&interlock:*"), "key"),
        (("~interlock:*", "resetchannels"), "channel"),
        ((*NEEDED, "-subscribe", "-psubscribe", "-ssubscribe"), "subscribe"),
    ],
)
def test_what_is_forbidden_is_an_error_that_names_it(
    world: ContractWorld, server: RedisServer, rules: tuple[str, ...], said: str
) -> None:
    locks = connect_to(world, user(server, "+@all", *rules))
    world.actor().do(world.connect().lock(world.name).acquire)
    assert said in refusal(world, locks).lower()
    assert len(world.eye.claims(world.name)) == 1


def test_revoked_rights_are_an_error_and_releases_are_repeatable(
    world: ContractWorld, server: RedisServer, ann: Actor
) -> None:
    locks = connect_to(world, user(server, "+@all", *NEEDED))
    grant = ann.do(locks.lock(world.name).acquire)
    server.command("ACL", "SETUSER", "app", "-evalsha", "-eval")
    with pytest.raises(StoreError, match=r"(?i)evalsha"):
        ann.do(grant.release)
    server.command("ACL", "SETUSER", "app", "+evalsha", "+eval")
    assert ann.do(grant.release) is True
    assert world.nothing_left()


# -- keys ------------------------------------------------------------------------------------------------

FOREIGN = [
    ("SET", "x"),
    ("RPUSH", "x"),
    ("SADD", "x"),
    ("ZADD", "1", "x"),
    ("XADD", "*", "field", "x"),
]


@pytest.mark.parametrize("value", FOREIGN, ids=lambda value: value[0])
def test_a_foreign_value_under_our_key_is_an_error_and_stays(
    world: ContractWorld, server: RedisServer, ann: Actor, value: tuple[str, ...]
) -> None:
    command, *rest = value
    name = world.fresh_name()
    lock = world.connect().lock(name)
    server.command(command, key_of(name), *rest)
    before = server.command("DUMP", key_of(name))
    with pytest.raises(StoreError, match=re.escape(key_of(name))):
        ann.do(lock.acquire, timeout=2)
    assert server.command("DUMP", key_of(name)) == before
    server.command("DEL", key_of(name))
    assert ann.do(ann.do(lock.acquire).release) is True


@pytest.mark.parametrize("name", ["book:1", "a}b", "a%7Db", "{x}", "x", "100%", "é ☃ \n 'quoted' \"\\"])
def test_all_keys_of_a_name_share_a_hash_tag_without_collisions(
    world: ContractWorld, server: RedisServer, ann: Actor, bob: Actor, name: str
) -> None:
    locks = world.connect(namespace="app")
    server.command("FLUSHALL")
    grant = ann.do(locks.lock(name).acquire, timeout=1)
    waiting = bob.start(locks.lock(name).acquire)
    eventually(lambda: len(ann.do(locks.claims, name)) == 2)
    keys = server.command("KEYS", "*")
    assert key_of(name, "app") in keys
    assert all(str(key).startswith(key_of(name, "app")) for key in keys)
    ann.do(grant.release)
    bob.do(waiting.result(5).release)


# -- where -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:port", "redis://127.0.0.1:1/?socket_timeout=soon", "redis+sentinel://127.0.0.1:1"]
)
@pytest.mark.parametrize("connect", [interlock.connect, interlock.aconnect])
def test_a_url_that_can_not_be_meant_is_refused(url: str, connect: Any) -> None:
    with pytest.raises((InvalidArgument, StoreError)) as caught:
        connect(url)
    assert str(caught.value)
