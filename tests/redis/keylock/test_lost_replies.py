"""What becomes of lost replies, cut connections, black holes, and servers that are killed or paused."""

import threading
from typing import Any

import pytest
import redis

from interlock import StoreError
from interlock.core.errors import UnknownOutcome
from interlock.redis import KeyLock
from interlock.testing.waiting import eventually


def pattern_of_drop(house: Any) -> bytes:
    """Return what is in a request that deletes the key."""
    return b"DELIFEQ" if house.server.kind == "valkey" else b"EVALSHA"


@pytest.mark.parametrize("retries", [0, 3, None])
def test_a_lost_reply_to_acquire_is_asked_again_and_is_an_acquire(house: Any, retries: int | None) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy, retries=retries))
    house.do(lock.locked)
    proxy.cut_after_request(b"SET")
    assert house.do(lock.acquire) is True
    assert proxy.cuts == 1
    assert house.do(lock.owned)
    assert house.do(lock.release) is True


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


def test_a_lost_reply_to_release_is_asked_again_and_is_a_release(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    house.do(lock.acquire)
    house.do(lock.release)  # now the way to drop is known
    house.do(lock.acquire)
    proxy.cut_after_request(pattern_of_drop(house))
    assert house.do(lock.release) is True
    assert proxy.cuts == 1
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


def test_a_body_whose_release_gets_no_reply_ends_in_a_store_error(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    with pytest.raises(StoreError, match="can't be reached"):
        house.actor.within(lock, lambda _: proxy.refuse())
    proxy.restore()
    assert house.do(lock.release) is True


def test_a_lost_reply_to_renew_is_asked_again(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock(client=house.client_through(proxy))
    house.do(lock.acquire)
    house.do(lock.renew)
    house.eye.pexpire(house.key, 5000)
    proxy.cut_after_request(b"IFEQ" if house.server.kind == "valkey" else b"EVALSHA")
    assert house.do(lock.renew) is True
    assert proxy.cuts == 1
    assert house.eye.pttl(house.key) > 10_000


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
    from redis.backoff import NoBackoff
    from redis.retry import Retry

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
