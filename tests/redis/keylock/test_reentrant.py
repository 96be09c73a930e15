"""The re-entrant lock: document 003 of the original scheme, with a count that dies with its lease."""

import threading
from typing import Any

import pytest

from interlock import LockLost
from interlock.testing.waiting import RENEWED, eventually


def test_the_session_of_the_seeds(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock", key="account_codehole", ttl=5)
    assert house.do(lock.acquire) is True
    assert house.do(lock.acquire) is True
    assert house.do(lock.release) is True
    assert house.eye.exists("account_codehole")
    assert house.do(lock.release) is True
    assert not house.eye.exists("account_codehole")
    assert house.do(lock.release) is False


def test_another_object_of_the_same_key_and_client_counts_with_it(house: Any) -> None:
    client = house.client()
    one, other = (house.lock("ReentrantKeyLock", client=client) for _ in range(2))
    assert house.do(one.acquire)
    assert house.do(other.acquire)
    assert house.do(one.release)
    assert house.do(other.owned)
    assert house.do(one.release)
    assert not house.eye.exists(house.key)


def test_each_key_has_its_own_count(house: Any) -> None:
    client = house.client()
    one, other = house.lock("ReentrantKeyLock", client=client), house.lock("ReentrantKeyLock", "lock:other", client)
    assert house.do(one.acquire)
    assert house.do(other.acquire)
    assert house.do(one.release)
    assert house.eye.exists("lock:other")
    assert house.do(other.release)


def test_another_thread_or_task_does_not_get_in(house: Any) -> None:
    lock, other = house.lock("ReentrantKeyLock"), house.new_actor()
    assert house.do(lock.acquire)
    assert other.do(lock.acquire) is False
    assert other.do(lock.release) is False
    assert house.do(lock.owned)
    assert house.do(lock.release)
    assert other.do(lock.acquire) is True


def test_to_acquire_again_asks_no_server(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock")
    house.do(lock.acquire)
    before = house.calls("set")
    for _ in range(3):
        assert house.do(lock.acquire, timeout=5)
    for _ in range(3):
        assert house.do(lock.release)
    assert house.calls("set") == before
    assert house.eye.exists(house.key)


def test_the_count_dies_with_its_lease(house: Any) -> None:
    lock, other = house.lock("ReentrantKeyLock", ttl=1), house.lock(key=house.key)
    house.do(lock.acquire)
    house.do(lock.acquire)
    assert house.do(other.acquire, timeout=20)  # the lease is over
    eventually(lambda: house.do(lambda: lock.expires_in) == 0)
    assert house.do(lock.acquire) is False  # a count of 2 would have said True
    assert house.do(lock.release) is False
    assert house.do(lock.release) is False
    assert house.do(other.owned)


def test_after_its_lease_the_next_acquire_begins_a_new_count(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock", ttl=RENEWED)
    house.do(lock.acquire)
    house.do(lock.acquire)
    eventually(lambda: not house.eye.exists(house.key))
    assert house.do(lock.acquire, timeout=20) is True
    house.do(lock.renew)
    assert house.do(lock.release) is True
    assert house.do(lock.release) is False
    assert not house.eye.exists(house.key)


def test_what_is_left_of_a_dead_count_is_given_up_at_once(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock", ttl=RENEWED)
    house.do(lock.acquire)
    house.do(lock.acquire)
    house.eye.persist(house.key)  # as if the clock of the server were slow
    eventually(lambda: house.do(lambda: lock.expires_in) == 0)
    assert house.do(lock.release) is False
    assert not house.eye.exists(house.key)
    assert house.do(lock.release) is False


def test_a_loss_that_renew_finds_voids_the_count(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock")
    house.do(lock.acquire)
    house.do(lock.acquire)
    house.eye.set(house.key, "somebody")
    assert house.do(lock.renew) is False
    assert house.do(lock.acquire) is False
    assert house.do(lock.release) is False
    assert house.eye.get(house.key) == "somebody"


def test_bodies_may_be_nested(house: Any) -> None:
    client = house.client()
    outer, inner = (house.lock("ReentrantKeyLock", client=client) for _ in range(2))
    if house.colour == "threads":

        def body(_: Any) -> None:
            with inner:
                assert inner.owned()
            assert outer.owned()
    else:

        async def body(_: Any) -> None:
            async with inner:
                assert await inner.owned()
            assert await outer.owned()

    house.actor.within(outer, body)
    assert not house.eye.exists(house.key)


def test_a_loss_inside_nested_bodies_is_told_by_both(house: Any) -> None:
    lock, told = house.lock("ReentrantKeyLock", ttl=1), []
    if house.colour == "threads":

        def body(_: Any) -> None:
            with pytest.raises(LockLost):
                with lock:
                    eventually(lambda: lock.expires_in == 0)
            told.append(1)
    else:

        async def body(_: Any) -> None:
            with pytest.raises(LockLost):
                async with lock:
                    await house.until(lambda: lock.expires_in == 0)
            told.append(1)

    with pytest.raises(LockLost):
        house.actor.within(lock, body)
    assert told


def test_it_takes_no_token_and_is_not_shared(house: Any) -> None:
    for word in ({"shared": True}, {"token": "abc"}):
        with pytest.raises(TypeError, match="belongs to one thread or task"):
            house.lock("ReentrantKeyLock", **word)


def test_a_release_without_a_reply_can_be_tried_again(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock("ReentrantKeyLock", client=house.client_through(proxy))
    house.do(lock.acquire)
    proxy.refuse()
    with pytest.raises(Exception, match="can't be reached"):
        house.do(lock.release)
    proxy.restore()
    assert house.do(lock.acquire) is True  # released at last, and acquired anew
    assert house.do(lock.release) is True
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_threads_that_count_at_once_do_not_disturb_each_other(house: Any) -> None:
    client, wrong = house.client(), []

    def work(number: int) -> None:
        lock = house.lock("ReentrantKeyLock", f"lock:{number % 3}", client, poll=0.01)
        for _ in range(10):
            with lock, lock:
                if not lock.owned():
                    wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not house.eye.keys("lock:*")
