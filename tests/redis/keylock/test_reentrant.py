"""The re-entrant lock: document 003 of the original scheme, with a count that ends with its lease."""

from typing import Any

import pytest

from interlock import LockLost
from interlock.testing.waiting import eventually


def test_the_session_of_the_seeds(env: Any) -> None:
    lock = env.lock("ReentrantKeyLock", key="account_codehole", ttl=5)
    assert env.do(lock.acquire) is True
    assert env.do(lock.acquire) is True
    assert env.do(lock.release) is True
    assert env.eye.exists("account_codehole")
    assert env.do(lock.release) is True
    assert not env.eye.exists("account_codehole")
    assert env.do(lock.release) is False


def test_another_thread_or_task_does_not_get_in(env: Any) -> None:
    lock, other = env.lock("ReentrantKeyLock"), env.new_actor()
    assert env.do(lock.acquire)
    assert other.do(lock.acquire) is False
    assert other.do(lock.release) is False
    assert env.do(lock.owned)
    assert env.do(lock.release)
    assert other.do(lock.acquire) is True


def test_to_acquire_again_asks_no_server(env: Any) -> None:
    lock = env.lock("ReentrantKeyLock")
    env.do(lock.acquire)
    before = env.calls("set")
    for _ in range(3):
        assert env.do(lock.acquire, timeout=5)
    for _ in range(3):
        assert env.do(lock.release)
    assert env.calls("set") == before
    assert env.eye.exists(env.key)


def test_the_count_dies_with_its_lease(env: Any) -> None:
    lock, other = env.lock("ReentrantKeyLock", ttl=1), env.lock(key=env.key)
    env.do(lock.acquire)
    env.do(lock.acquire)
    assert env.do(other.acquire, timeout=20)  # the lease has expired
    eventually(lambda: env.do(lambda: lock.expires_in) == 0)
    assert env.do(lock.acquire) is False  # with a count of 2 it would be True
    assert env.do(lock.release) is False
    assert env.do(lock.release) is False
    assert env.do(other.owned)


def test_a_loss_that_renew_finds_voids_the_count(env: Any) -> None:
    lock = env.lock("ReentrantKeyLock")
    env.do(lock.acquire)
    env.do(lock.acquire)
    env.eye.set(env.key, "somebody")
    assert env.do(lock.renew) is False
    assert env.do(lock.acquire) is False
    assert env.do(lock.release) is False
    assert env.eye.get(env.key) == "somebody"


def test_bodies_may_be_nested(env: Any) -> None:
    client = env.client()
    outer, inner = (env.lock("ReentrantKeyLock", client=client) for _ in range(2))
    if env.sync_or_async == "threads":

        def body(_: Any) -> None:
            with inner:
                assert inner.owned()
            assert outer.owned()
    else:

        async def body(_: Any) -> None:
            async with inner:
                assert await inner.owned()
            assert await outer.owned()

    env.actor.within(outer, body)
    assert not env.eye.exists(env.key)


def test_a_loss_inside_nested_bodies_is_told_by_both(env: Any) -> None:
    lock, told = env.lock("ReentrantKeyLock", ttl=1), []
    if env.sync_or_async == "threads":

        def body(_: Any) -> None:
            with pytest.raises(LockLost):
                with lock:
                    eventually(lambda: lock.expires_in == 0)
            told.append(1)
    else:

        async def body(_: Any) -> None:
            with pytest.raises(LockLost):
                async with lock:
                    await env.until(lambda: lock.expires_in == 0)
            told.append(1)

    with pytest.raises(LockLost):
        env.actor.within(lock, body)
    assert told
