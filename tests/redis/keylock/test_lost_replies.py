"""What becomes of lost replies, cut connections, black holes, and servers that are killed or paused.

Also with clients as people make them: redis-py sends a command again by itself, and does not tell.
"""

import asyncio
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
import valkey.asyncio.cluster
import valkey.cluster
from redis.backoff import NoBackoff
from redis.retry import Retry

from interlock import LockLost, StoreError
from interlock.core.errors import UnknownOutcome
from interlock.redis import AsyncKeyLock, KeyLock
from interlock.testing.waiting import eventually
from tests.servers import RedisCluster, need

CLIENTS = {
    "redis-py's default": ("redis", None),
    "redis-py, once": ("redis", 0),
    "valkey-py's default": ("valkey", None),
    "valkey-py, often": ("valkey", 3),
}


@pytest.fixture(params=CLIENTS)
def through(request: pytest.FixtureRequest, house: Any) -> tuple[Any, Any]:
    """A proxy, and a client through it, of each library with what it does by default."""
    library, retries = CLIENTS[request.param]
    proxy = house.proxy()
    return proxy, house.client_through(proxy, retries, library=library)


def pattern_of_drop(house: Any) -> bytes:
    """Return what is in a request that deletes the key."""
    return b"DELIFEQ" if house.server.kind == "valkey" else b"EVAL"


@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
def test_a_release_whose_reply_was_lost_is_a_release(house: Any, through: tuple[Any, Any], name: str) -> None:
    proxy, client = through
    lock = house.lock(name, client=client, **({"timeout": 10} if name == "ClientLock" else {}))
    know_the_ways(house, lock)
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert house.do(lock.acquire)
    proxy.cut_after_request(pattern_of_drop(house))
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert house.do(lock.release) in (True, None)  # a ClientLock raises, or says nothing
    assert proxy.cuts == 1
    assert not house.eye.exists(house.key)


def test_a_body_whose_release_lost_its_reply_ends_well(house: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    lock = house.lock(client=client)
    know_the_ways(house, lock)
    house.actor.within(lock, lambda _: proxy.cut_after_request(pattern_of_drop(house)))
    assert proxy.cuts == 1


def know_the_ways(house: Any, lock: Any) -> None:
    """Let the library find out how this server deletes and extends."""
    assert house.do(lock.acquire)
    if hasattr(lock, "renew"):
        assert house.do(lock.renew)
    house.do(lock.release)


def test_it_is_a_release_also_where_another_has_it_before_the_client_asks_again(
    house: Any, through: tuple[Any, Any]
) -> None:
    proxy, client = through
    lock = house.lock(client=client)
    know_the_ways(house, lock)
    assert house.do(lock.acquire)
    proxy.cut_after_request(pattern_of_drop(house))

    def take() -> None:
        while not house.eye.set(house.key, "somebody", nx=True):
            pass

    other = threading.Thread(target=take)
    other.start()
    released = house.do(lock.release)
    other.join()
    assert released is True
    assert house.eye.get(house.key) == "somebody"


def test_a_lock_that_was_lost_is_not_released_and_its_body_is_told(house: Any, through: tuple[Any, Any]) -> None:
    _, client = through
    lock = house.lock(client=client)
    assert house.do(lock.acquire)
    house.eye.delete(house.key)
    assert house.do(lock.release) is False
    with pytest.raises(LockLost):
        house.actor.within(lock, lambda _: house.eye.set(house.key, "somebody"))
    assert house.eye.get(house.key) == "somebody"


def test_an_acquire_whose_reply_was_lost_is_an_acquire(house: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    for name in ("KeyLock", "ReentrantKeyLock", "ClientLock"):
        lock = house.lock(name, client=client)
        house.do(lock.locked)
        proxy.cut_after_request(b"SET")
        assert house.do(lock.acquire) is True
        assert house.do(lock.owned)
        house.do(lock.release)
        assert not house.eye.exists(house.key)
    assert proxy.cuts == 3


def test_a_renewal_whose_reply_was_lost_is_a_renewal(house: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    lock = house.lock(client=client)
    know_the_ways(house, lock)
    assert house.do(lock.acquire)
    house.eye.pexpire(house.key, 5000)
    proxy.cut_after_request(b"IFEQ" if house.server.kind == "valkey" else b"EVAL")
    assert house.do(lock.renew) is True
    assert proxy.cuts == 1
    assert house.eye.pttl(house.key) > 10_000
    assert house.do(lock.release) is True


@pytest.mark.parametrize("how", [{}, {"replace_ttl": True}])
def test_an_extension_whose_reply_was_lost_is_one(house: Any, through: tuple[Any, Any], how: dict[str, Any]) -> None:
    proxy, client = through
    lock = house.lock("ClientLock", client=client, timeout=10)
    assert house.do(lock.acquire)
    house.do(lock.extend, 20, **how)
    pattern = b"IFEQ" if how and house.server.kind == "valkey" else b"EVAL"
    proxy.cut_after_request(pattern)
    house.do(lock.extend, 30, **how)
    assert proxy.cuts == 1
    assert house.eye.pttl(house.key) > 25_000
    house.do(lock.release)
    assert not house.eye.exists(house.key)


def test_a_reply_that_is_late_counts_as_lost(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, socket_timeout=0.3))
    know_the_ways(house, lock)
    assert house.do(lock.acquire)
    proxy.black_hole(passes_requests=True)
    mend = threading.Thread(target=lambda: (eventually(lambda: not house.eye.exists(house.key)), proxy.restore()))
    mend.start()
    assert house.do(lock.release) is True
    mend.join()
    assert not house.eye.exists(house.key)


class LostReply:
    """The reply to the next command of a kind, of any client of a library and colour, is lost once it was there.

    Args:
        monkeypatch: undoes it.
        library, colour: whose.
        commands: the names of the command.
        then: what happens at that moment.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, library: str, colour: str, commands: set[str], then: Any = None
    ) -> None:
        self.lost = 0
        kind = import_module(f"{library}.connection" if colour == "threads" else f"{library}.asyncio.connection")
        error = import_module(f"{library}.exceptions").ConnectionError
        sends = "send_command" if colour == "threads" else "pack_command"
        send, read = getattr(kind.Connection, sends), kind.Connection.read_response

        def sent(connection: Any, *words: Any, **how: Any) -> Any:
            connection.last_sent = words[0]
            return send(connection, *words, **how)

        def lose() -> None:
            self.lost += 1
            if then is not None:
                then()
            raise error("the reply was lost")

        def is_it(connection: Any) -> bool:
            return not self.lost and getattr(connection, "last_sent", None) in commands

        def read_response(connection: Any, *args: Any, **how: Any) -> Any:
            reply = read(connection, *args, **how)
            return (lose() or reply) if is_it(connection) else reply

        async def aread_response(connection: Any, *args: Any, **how: Any) -> Any:
            reply = await read(connection, *args, **how)
            return (lose() or reply) if is_it(connection) else reply

        monkeypatch.setattr(kind.Connection, sends, sent)
        monkeypatch.setattr(kind.Connection, "read_response", aread_response if colour == "tasks" else read_response)


DROP = {"DELIFEQ", "EVAL", "DELEX"}


@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_a_lost_reply_and_then_a_refusal_are_no_loss_and_leave_no_orphan(
    house: Any, own_server: Any, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    """As when a primary becomes a replica just after it has done it."""
    with redis.Redis(host=own_server.host, port=own_server.port, decode_responses=True) as admin:
        client = house.client(library, port=own_server.port, retry=house.retry(library, 3))
        lock = house.lock(client=client)
        know_the_ways(house, lock)

        def become_a_replica() -> None:
            admin.replicaof("127.0.0.1", "1")

        with monkeypatch.context() as patch:
            fault = LostReply(patch, library, house.colour, {"SET"}, become_a_replica)
            with pytest.raises(StoreError, match="replica"):
                house.do(lock.acquire)
            assert fault.lost == 1
        admin.replicaof("NO", "ONE")
        assert admin.exists(house.key)  # the orphan
        assert house.do(lock.acquire) is True  # it is cleared first
        with monkeypatch.context() as patch:
            fault = LostReply(patch, library, house.colour, DROP, become_a_replica)
            if own_server.kind == "valkey":
                with pytest.raises(StoreError, match="replica"):
                    house.do(lock.release)
                admin.replicaof("NO", "ONE")
            # A script that finds nothing to write is not refused.
            assert house.do(lock.release) is True
            assert fault.lost == 1
        assert not admin.exists(house.key)


@pytest.fixture(scope="module", params=["valkey", "redis"])
def cluster(request: pytest.FixtureRequest) -> Iterator[RedisCluster]:
    """Three nodes."""
    need(request.param)
    with RedisCluster(3, request.param) as running:
        yield running


@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_on_a_cluster_too(cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    kind = {"redis": redis.cluster.RedisCluster, "valkey": valkey.cluster.ValkeyCluster}[library]
    client = kind(host="127.0.0.1", port=cluster.nodes[0].port)
    lock = KeyLock(client, f"lock:{library}")
    assert lock.acquire()
    assert lock.release()
    for commands, ask in (({"SET"}, lock.acquire), (DROP, lock.release)):
        with monkeypatch.context() as patch:
            fault = LostReply(patch, library, "threads", commands)
            assert ask() is True
            assert fault.lost == 1
    assert lock.acquire()
    client.delete(f"lock:{library}")
    assert lock.release() is False  # it was sent once, so it was lost
    client.close()


@pytest.mark.parametrize("library", ["redis", "valkey"])
def test_on_a_cluster_of_tasks_too(cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    kind = {"redis": redis.asyncio.cluster.RedisCluster, "valkey": valkey.asyncio.cluster.ValkeyCluster}[library]

    async def session() -> None:
        client = kind(host="127.0.0.1", port=cluster.nodes[0].port)
        lock = AsyncKeyLock(client, f"lock:tasks:{library}")
        assert await lock.acquire()
        assert await lock.release()
        for commands, ask in (({"SET"}, lock.acquire), (DROP, lock.release)):
            with monkeypatch.context() as patch:
                fault = LostReply(patch, library, "tasks", commands)
                assert await ask() is True
                assert fault.lost == 1
        assert await lock.acquire()
        await client.delete(f"lock:tasks:{library}")
        assert await lock.release() is False  # it was sent once, so it was lost
        await client.aclose()

    asyncio.run(session())


def test_a_lost_reply_does_not_make_the_lock_of_another_ours(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=1))
    house.eye.set(house.key, "somebody")
    house.do(lock.locked)
    proxy.cut_after_request(b"SET")
    assert house.do(lock.acquire) is False


def test_when_no_reply_comes_at_all_the_next_acquire_clears_what_the_first_may_have_left(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=0))
    house.do(lock.locked)
    proxy.cut_after_request(b"SET", times=2)
    with pytest.raises(UnknownOutcome, match="may have been done or not"):
        house.do(lock.acquire)
    assert house.eye.exists(house.key)  # the orphan
    assert house.do(lock.owned) is False
    assert house.do(lock.acquire) is True
    assert house.eye.get(house.key) == house.do(lambda: lock.token)


def test_a_release_after_an_acquire_without_a_reply_clears_what_that_left(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=0))
    house.do(lock.locked)
    proxy.cut_after_request(b"SET", times=2)
    with pytest.raises(StoreError):
        house.do(lock.acquire)
    assert house.do(lock.release) is False
    assert not house.eye.exists(house.key)


def test_a_release_without_a_reply_can_be_tried_again(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    assert house.do(lock.acquire)
    proxy.refuse()
    with pytest.raises(StoreError, match="can't be reached"):
        house.do(lock.release)
    assert house.do(lambda: lock.token) is not None
    proxy.restore()
    assert house.do(lock.release) is True
    assert not house.eye.exists(house.key)


def test_after_a_release_without_a_reply_the_lock_can_be_acquired_again(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy), ttl=None)
    assert house.do(lock.acquire)
    proxy.refuse()
    with pytest.raises(StoreError):
        house.do(lock.release)
    proxy.restore()
    assert house.do(lock.acquire) is True


def test_a_body_that_failed_ends_in_its_own_error_though_its_release_fails_too(
    house: Any, caplog: pytest.LogCaptureFixture
) -> None:
    proxy = house.proxy()

    def body(_: Any) -> None:
        proxy.refuse()
        raise ZeroDivisionError

    for name in ("KeyLock", "ClientLock"):
        lock = house.lock(name, client=house.client_through(proxy, retries=0))
        with pytest.raises(ZeroDivisionError) as caught:
            house.actor.within(lock, body)
        assert "onnect" in caught.value.__notes__[0]
        assert "could not be released" in caplog.text
        proxy.restore()
        house.do(lock.release)


def test_a_body_whose_release_gets_no_reply_ends_in_a_store_error(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    with pytest.raises(StoreError, match="can't be reached"):
        house.actor.within(lock, lambda _: proxy.refuse())
    proxy.restore()
    assert house.do(lock.release) is True


def test_a_black_hole_costs_one_time_out_of_the_client(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=0, socket_timeout=0.3))
    house.do(lock.locked)
    requests = proxy.requests
    proxy.black_hole(passes_requests=True)
    with pytest.raises(UnknownOutcome, match="did not answer in time"):
        house.do(lock.acquire)
    assert proxy.requests == requests + 1
    proxy.restore()
    assert house.do(lock.acquire) is True
    assert house.do(lock.release) is True


def test_a_killed_server_is_a_store_error_and_its_locks_are_gone(own_server: Any) -> None:
    with redis.Redis(host=own_server.host, port=own_server.port, retry=Retry(NoBackoff(), 0)) as client:
        lock = KeyLock(client, "lock:1")
        assert lock.acquire()
        own_server.kill()
        with pytest.raises(StoreError):
            lock.release()
        own_server.start()
        assert lock.release() is True  # not there any more, and it was asked for in time
        assert lock.acquire()
        own_server.restart()
        assert lock.release() is False  # nobody had asked: it was lost


def test_a_paused_server_answers_in_the_end(own_server: Any) -> None:
    with redis.Redis(host=own_server.host, port=own_server.port) as client:
        lock = KeyLock(client, "lock:1")
        assert not lock.locked()
        own_server.pause()
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(lock.acquire() and lock.release()))
        thread.start()
        own_server.resume()
        thread.join()
        assert answers == [True]
        eventually(lambda: not lock.locked())
