"""Lost replies, cut connections, black holes, and servers that are killed or paused.

Also with clients with default settings: redis-py silently sends a command again.
"""

import threading
from typing import Any

import pytest
import redis.asyncio.cluster
import redis.cluster
from redis.backoff import NoBackoff
from redis.retry import Retry

from interlock import StoreError
from interlock.core.errors import UnknownOutcome
from interlock.redis import KeyLock

CLIENTS = {
    "redis-py's default": ("redis", None),
    "redis-py, once": ("redis", 0),
    "valkey-py's default": ("valkey", None),
    "valkey-py, often": ("valkey", 3),
}


@pytest.fixture(params=CLIENTS)
def through(request: pytest.FixtureRequest, house: Any) -> tuple[Any, Any]:
    """A proxy, and a client through it, of each library with its default retries."""
    library, retries = CLIENTS[request.param]
    proxy = house.proxy()
    return proxy, house.client_through(proxy, retries, library=library)


@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
def test_a_release_whose_reply_was_lost_is_a_release(house: Any, through: tuple[Any, Any], name: str) -> None:
    proxy, client = through
    lock = house.lock(name, client=client, **({"timeout": 10} if name == "ClientLock" else {}))
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert house.do(lock.acquire)
    proxy.cut_after_request(b"EVAL")
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert house.do(lock.release) in (True, None)  # a ClientLock raises, or returns None
    assert proxy.cuts == 1
    assert not house.eye.exists(house.key)


def test_a_repeated_release_is_true_if_another_holder_came(house: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    lock = house.lock(client=client)
    assert house.do(lock.acquire)
    proxy.cut_after_request(b"EVAL")

    def take() -> None:
        while not house.eye.set(house.key, "somebody", nx=True):
            pass

    other = threading.Thread(target=take)
    other.start()
    released = house.do(lock.release)
    other.join()
    assert released is True
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
    assert house.do(lock.acquire)
    house.eye.pexpire(house.key, 5000)
    proxy.cut_after_request(b"EVAL")
    assert house.do(lock.renew) is True
    assert proxy.cuts == 1
    assert house.eye.pttl(house.key) > 10_000
    assert house.do(lock.release) is True


def test_the_next_acquire_removes_an_orphan_of_a_lost_reply(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=0))
    house.do(lock.locked)
    proxy.cut_after_request(b"SET", times=2)
    with pytest.raises(UnknownOutcome, match="outcome is unknown"):
        house.do(lock.acquire)
    assert house.eye.exists(house.key)  # the orphan
    assert house.do(lock.owned) is False
    assert house.do(lock.acquire) is True
    assert house.eye.get(house.key) == house.do(lambda: lock.token)


def test_a_release_removes_an_orphan_of_an_unanswered_acquire(house: Any) -> None:
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
    with pytest.raises(StoreError, match="is unreachable"):
        house.do(lock.release)
    assert house.do(lambda: lock.token) is not None
    proxy.restore()
    assert house.do(lock.release) is True
    assert not house.eye.exists(house.key)


def test_a_failed_body_raises_its_own_error_if_the_release_fails(
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


def test_a_black_hole_costs_one_time_out_of_the_client(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=0, socket_timeout=0.3))
    house.do(lock.locked)
    requests = proxy.requests
    proxy.black_hole(passes_requests=True)
    with pytest.raises(UnknownOutcome, match="No reply from the server in time"):
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
        assert lock.release() is True  # the key is gone, and the release was requested in time
        assert lock.acquire()
        own_server.restart()
        assert lock.release() is False  # lost before any release was requested


@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
def test_a_connection_that_fails_in_its_handshake_is_tried_once(house: Any, name: str) -> None:
    """So it is with a proxy whose server is down, and with a server that has too many clients."""
    proxy = house.proxy()
    client = house.client_through(proxy, retries=0)
    lock = house.lock(name, client=client, **({"timeout": 10} if name == "ClientLock" else {}))
    assert house.do(lock.acquire)
    proxy.redirect("127.0.0.1", 1)
    proxy.cut()
    before = proxy.connections
    for step in (lock.release, lock.acquire, lock.release):
        with pytest.raises((StoreError, redis.ConnectionError)):
            house.do(step)
    assert proxy.connections - before <= 6  # for the release that has to be settled, too
    proxy.redirect(house.server.host, house.server.port)
    assert house.do(lock.release) in (True, None)
    assert not house.eye.exists(house.key)
