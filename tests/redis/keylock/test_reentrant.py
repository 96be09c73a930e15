"""The re-entrant lock: document 003 of the original scheme, with a count that ends with its lease."""

from typing import Any

import pytest

from interlock import LockLost
from interlock.testing.waiting import eventually


def test_the_session_of_the_seeds(house: Any) -> None:
    lock = house.lock("ReentrantKeyLock", key="account_codehole", ttl=5)
    assert house.do(lock.acquire) is True
    assert house.do(lock.acquire) is True
    assert house.do(lock.release) is True
    assert house.eye.exists("account_codehole")
    assert house.do(lock.release) is True
    assert not house.eye.exists("account_codehole")
    assert house.do(lock.release) is False


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
    assert house.do(other.acquire, timeout=20)  # the lease has expired
    eventually(lambda: house.do(lambda: lock.expires_in) == 0)
    assert house.do(lock.acquire) is False  # with a count of 2 it would be True
    assert house.do(lock.release) is False
    assert house.do(lock.release) is False
    assert house.do(other.owned)


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
