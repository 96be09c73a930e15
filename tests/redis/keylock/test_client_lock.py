"""The drop-in for `client.lock(...)`: methods and exceptions of the library's own lock, without its bugs."""

import inspect
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey

from interlock import InvalidArgument
from interlock.redis import AsyncClientLock, ClientLock
from interlock.testing.waiting import eventually


@pytest.fixture(params=["the library's own", "ClientLock"])
def make(request: pytest.FixtureRequest, env: Any) -> Any:
    """Makes a lock by `client.lock`: the library's, or interlock's by one more argument."""

    def made(client: Any = None, **how: Any) -> Any:
        if request.param == "ClientLock":
            kind = ClientLock if env.sync_or_async == "threads" else AsyncClientLock
            how = {"lock_class": kind, **how}
        return env.do((client or env.client()).lock, env.key, **how)

    return made


def test_acquire_and_release(env: Any, make: Any) -> None:
    lock, other = make(timeout=10), make(blocking=False)
    assert env.do(lock.acquire) is True
    assert 9000 < env.eye.pttl(env.key) <= 10_000
    assert env.do(lock.locked) is True
    assert env.do(lock.owned) is True
    assert env.do(other.acquire) is False
    assert env.do(other.owned) is False
    assert env.do(lock.release) is None
    assert env.do(lock.locked) is False


def test_without_a_timeout_the_key_stays_for_ever(env: Any, make: Any) -> None:
    lock = make()
    assert env.do(lock.acquire)
    assert env.eye.pttl(env.key) == -1
    for method, arguments in ((lock.extend, (10,)), (lock.reacquire, ())):
        with pytest.raises(redis.exceptions.LockError, match="with no timeout"):
            env.do(method, *arguments)
    env.do(lock.release)


@pytest.mark.parametrize(("method", "arguments"), [("release", ()), ("extend", (10,)), ("reacquire", ())])
def test_what_is_not_locked_can_not_be_released_or_extended(
    env: Any, make: Any, method: str, arguments: tuple[int, ...]
) -> None:
    with pytest.raises(redis.exceptions.LockError, match="Cannot") as caught:
        env.do(getattr(make(timeout=10), method), *arguments)
    assert not isinstance(caught.value, redis.exceptions.LockNotOwnedError)


def test_what_was_lost_is_not_owned(env: Any, make: Any) -> None:
    lock = make(timeout=10)
    env.do(lock.acquire)
    env.eye.set(env.key, "somebody")
    assert env.do(lock.owned) is False
    for method, arguments in ((lock.extend, (10,)), (lock.reacquire, ()), (lock.release, ())):
        with pytest.raises(redis.exceptions.LockNotOwnedError, match="no longer owned"):
            env.do(method, *arguments)
    assert env.eye.get(env.key) == "somebody"


def test_extend_adds_or_replaces_and_reacquire_begins_anew(env: Any, make: Any) -> None:
    lock = make(timeout=10)
    env.do(lock.acquire)
    assert env.do(lock.extend, 10) is True
    assert 15_000 < env.eye.pttl(env.key) <= 20_000
    assert env.do(lock.extend, 5, replace_ttl=True) is True
    assert 2000 < env.eye.pttl(env.key) <= 5000
    assert env.do(lock.reacquire) is True
    assert 5000 < env.eye.pttl(env.key) <= 10_000


def test_with_releases_and_raises_when_it_was_lost(env: Any, make: Any) -> None:
    lock = make(timeout=10)
    assert env.actor.within(lock, lambda inside: inside is lock and env.eye.exists(env.key))
    assert not env.eye.exists(env.key)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        env.actor.within(lock, lambda _: env.eye.delete(env.key))


def test_a_token_may_be_chosen(env: Any, make: Any) -> None:
    lock = make(timeout=10)
    assert env.do(lock.acquire, token="mine")
    assert env.eye.get(env.key) == "mine"
    assert env.do(lambda: lock.local.token) == b"mine"
    assert env.do(lock.acquire, blocking=False, token="mine") is False
    env.do(lock.release)


def test_a_token_may_be_handed_over(env: Any, make: Any) -> None:
    client = env.client()
    first, second = make(client, timeout=10), make(client, timeout=10, thread_local=False)
    env.do(first.acquire)

    def adopt() -> None:
        second.local.token = first.local.token

    env.do(adopt)
    env.do(second.release)
    assert not env.eye.exists(env.key)


def test_a_lock_that_is_not_thread_local_may_change_hands(env: Any, make: Any) -> None:
    lock, other = make(timeout=10, thread_local=False), env.new_actor()
    env.do(lock.acquire)
    other.do(lock.release)
    assert not env.eye.exists(env.key)


def test_blocking_waits(env: Any, make: Any) -> None:
    env.eye.set(env.key, "somebody")
    lock = make(timeout=10, sleep=0.01)
    before = env.calls("set")
    waiting = env.actor.start(lock.acquire)
    eventually(lambda: env.calls("set") >= before + 3)
    env.eye.delete(env.key)
    assert waiting.result(20) is True


# -- improvements -------------------------------------------------------------------------------------------


def ours(env: Any, **how: Any) -> Any:
    """Return interlock's lock."""
    return env.lock("ClientLock", **how)


@pytest.mark.parametrize("timeout", [0, -1, "5", True])
def test_a_timeout_that_would_mean_no_timeout_is_refused(env: Any, timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        ours(env, timeout=timeout)


def test_other_arguments_out_of_range_are_refused(env: Any) -> None:
    for how in ({"sleep": -1}, {"sleep": "1"}, {"blocking_timeout": "1"}, {"thread_local": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(how))):
            ours(env, **how)
    lock = ours(env, sleep=0, blocking_timeout=-1)
    for how in ({"blocking_timeout": float("nan")}, {"token": "\ud800"}):
        with pytest.raises(InvalidArgument, match=next(iter(how))):
            env.do(lock.acquire, **how)
    assert env.do(lock.acquire) is True
    assert env.do(lock.acquire, blocking=True) is False


def test_a_failed_release_raises_the_clients_error(env: Any) -> None:
    proxy = env.proxy()
    lock = ours(env, client=env.client_through(proxy, retries=0), timeout=10)
    env.do(lock.acquire)
    proxy.refuse()
    for method in (lock.release, lock.acquire, lock.locked, lock.owned, lock.reacquire):
        with pytest.raises(redis.exceptions.ConnectionError):
            env.do(method)
    proxy.restore()
    env.do(lock.release)
    assert not env.eye.exists(env.key)


def test_a_loss_may_be_logged_instead_of_raised(env: Any, caplog: pytest.LogCaptureFixture) -> None:
    lock = ours(env, timeout=30, raise_on_release_error=False)
    env.actor.within(lock, lambda _: env.eye.delete(env.key))
    assert "no longer owned" in caplog.text


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_valkey_s_exceptions_are_raised_for_its_clients(env: Any) -> None:
    lock = env.lock("ClientLock", client=env.client("valkey"), timeout=10)
    with pytest.raises(valkey.exceptions.LockError) as caught:
        env.do(lock.release)
    assert caught.value.lock_name == env.key


@pytest.mark.parametrize(
    ("ours_", "theirs"), [(ClientLock, redis.lock.Lock), (AsyncClientLock, redis.asyncio.lock.Lock)]
)
@pytest.mark.parametrize("name", ["__init__", "acquire", "release", "extend", "reacquire", "locked", "owned"])
def test_it_takes_the_same_arguments_and_has_the_same_methods(ours_: Any, theirs: Any, name: str) -> None:
    mine, other = (inspect.signature(getattr(kind, name)).parameters for kind in (ours_, theirs))
    assert list(mine) == list(other), name
    assert [each.default for each in mine.values()] == [each.default for each in other.values()], name
