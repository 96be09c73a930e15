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
def through(request: pytest.FixtureRequest, env: Any) -> tuple[Any, Any]:
    """A proxy, and a client through it, of each library with its default retries."""
    library, retries = CLIENTS[request.param]
    proxy = env.proxy()
    return proxy, env.client_through(proxy, retries, library=library)


@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock", "ClientLock"])
def test_a_release_whose_reply_was_lost_is_a_release(env: Any, through: tuple[Any, Any], name: str) -> None:
    proxy, client = through
    lock = env.lock(name, client=client, **({"timeout": 10} if name == "ClientLock" else {}))
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert env.do(lock.acquire)
    proxy.cut_after_request(b"EVAL")
    for _ in range(3 if name == "ReentrantKeyLock" else 1):
        assert env.do(lock.release) in (True, None)  # a ClientLock raises, or returns None
    assert proxy.cuts == 1
    assert not env.eye.exists(env.key)


def test_a_repeated_release_is_true_if_another_holder_came(env: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    lock = env.lock(client=client)
    assert env.do(lock.acquire)
    proxy.cut_after_request(b"EVAL")

    def take() -> None:
        while not env.eye.set(env.key, "somebody", nx=True):
            pass

    other = threading.Thread(target=take)
    other.start()
    released = env.do(lock.release)
    other.join()
    assert released is True
    assert env.eye.get(env.key) == "somebody"


def test_an_acquire_whose_reply_was_lost_is_an_acquire(env: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    for name in ("KeyLock", "ReentrantKeyLock", "ClientLock"):
        lock = env.lock(name, client=client)
        env.do(lock.locked)
        proxy.cut_after_request(b"SET")
        assert env.do(lock.acquire) is True
        assert env.do(lock.owned)
        env.do(lock.release)
        assert not env.eye.exists(env.key)
    assert proxy.cuts == 3


def test_a_renewal_whose_reply_was_lost_is_a_renewal(env: Any, through: tuple[Any, Any]) -> None:
    proxy, client = through
    lock = env.lock(client=client)
    assert env.do(lock.acquire)
    env.eye.pexpire(env.key, 5000)
    proxy.cut_after_request(b"EVAL")
    assert env.do(lock.renew) is True
    assert proxy.cuts == 1
    assert env.eye.pttl(env.key) > 10_000
    assert env.do(lock.release) is True


def test_the_next_acquire_removes_an_orphan_of_a_lost_reply(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy, retries=0))
    env.do(lock.locked)
    proxy.cut_after_request(b"SET", times=2)
    with pytest.raises(UnknownOutcome, match="outcome is unknown"):
        env.do(lock.acquire)
    assert env.eye.exists(env.key)  # the orphan
    assert env.do(lock.owned) is False
    assert env.do(lock.acquire) is True
    assert env.eye.get(env.key) == env.do(lambda: lock.token)


def test_a_release_removes_an_orphan_of_an_unanswered_acquire(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy, retries=0))
    env.do(lock.locked)
    proxy.cut_after_request(b"SET", times=2)
    with pytest.raises(StoreError):
        env.do(lock.acquire)
    assert env.do(lock.release) is False
    assert not env.eye.exists(env.key)


def test_a_release_without_a_reply_can_be_tried_again(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy))
    assert env.do(lock.acquire)
    proxy.refuse()
    with pytest.raises(StoreError, match="is unreachable"):
        env.do(lock.release)
    assert env.do(lambda: lock.token) is not None
    proxy.restore()
    assert env.do(lock.release) is True
    assert not env.eye.exists(env.key)


def test_a_failed_body_raises_its_own_error_if_the_release_fails(env: Any, caplog: pytest.LogCaptureFixture) -> None:
    proxy = env.proxy()

    def body(_: Any) -> None:
        proxy.refuse()
        raise ZeroDivisionError

    for name in ("KeyLock", "ClientLock"):
        lock = env.lock(name, client=env.client_through(proxy, retries=0))
        with pytest.raises(ZeroDivisionError) as caught:
            env.actor.within(lock, body)
        assert "onnect" in caught.value.__notes__[0]
        assert "Could not release" in caplog.text
        proxy.restore()
        env.do(lock.release)


def test_a_black_hole_costs_one_time_out_of_the_client(env: Any) -> None:
    proxy = env.proxy()
    lock = env.lock(client=env.client_through(proxy, retries=0, socket_timeout=0.3))
    env.do(lock.locked)
    requests = proxy.requests
    proxy.black_hole(passes_requests=True)
    with pytest.raises(UnknownOutcome, match="No reply from the server in time"):
        env.do(lock.acquire)
    assert proxy.requests == requests + 1
    proxy.restore()
    assert env.do(lock.acquire) is True
    assert env.do(lock.release) is True


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
def test_a_connection_that_fails_in_its_handshake_is_tried_once(env: Any, name: str) -> None:
    """So it is with a proxy whose server is down, and with a server that has too many clients."""
    proxy = env.proxy()
    client = env.client_through(proxy, retries=0)
    lock = env.lock(name, client=client, **({"timeout": 10} if name == "ClientLock" else {}))
    assert env.do(lock.acquire)
    proxy.redirect("127.0.0.1", 1)
    proxy.cut()
    before = proxy.connections
    for step in (lock.release, lock.acquire, lock.release):
        with pytest.raises((StoreError, redis.ConnectionError)):
            env.do(step)
    assert proxy.connections - before <= 6  # for the release that has to be settled, too
    proxy.redirect(env.server.host, env.server.port)
    assert env.do(lock.release) in (True, None)
    assert not env.eye.exists(env.key)
