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
def make(request: pytest.FixtureRequest, house: Any) -> Any:
    """Makes a lock by `client.lock`: the library's, or interlock's by one more argument."""

    def made(client: Any = None, **how: Any) -> Any:
        if request.param == "ClientLock":
            kind = ClientLock if house.colour == "threads" else AsyncClientLock
            how = {"lock_class": kind, **how}
        return house.do((client or house.client()).lock, house.key, **how)

    return made


def test_acquire_and_release(house: Any, make: Any) -> None:
    lock, other = make(timeout=10), make(blocking=False)
    assert house.do(lock.acquire) is True
    assert 9000 < house.eye.pttl(house.key) <= 10_000
    assert house.do(lock.locked) is True
    assert house.do(lock.owned) is True
    assert house.do(other.acquire) is False
    assert house.do(other.owned) is False
    assert house.do(lock.release) is None
    assert house.do(lock.locked) is False


def test_without_a_timeout_the_key_stays_for_ever(house: Any, make: Any) -> None:
    lock = make()
    assert house.do(lock.acquire)
    assert house.eye.pttl(house.key) == -1
    for method, arguments in ((lock.extend, (10,)), (lock.reacquire, ())):
        with pytest.raises(redis.exceptions.LockError, match="with no timeout"):
            house.do(method, *arguments)
    house.do(lock.release)


@pytest.mark.parametrize(("method", "arguments"), [("release", ()), ("extend", (10,)), ("reacquire", ())])
def test_what_is_not_locked_can_not_be_released_or_extended(
    house: Any, make: Any, method: str, arguments: tuple[int, ...]
) -> None:
    with pytest.raises(redis.exceptions.LockError, match="Cannot") as caught:
        house.do(getattr(make(timeout=10), method), *arguments)
    assert not isinstance(caught.value, redis.exceptions.LockNotOwnedError)


def test_what_was_lost_is_not_owned(house: Any, make: Any) -> None:
    lock = make(timeout=10)
    house.do(lock.acquire)
    house.eye.set(house.key, "somebody")
    assert house.do(lock.owned) is False
    for method, arguments in ((lock.extend, (10,)), (lock.reacquire, ()), (lock.release, ())):
        with pytest.raises(redis.exceptions.LockNotOwnedError, match="no longer owned"):
            house.do(method, *arguments)
    assert house.eye.get(house.key) == "somebody"


def test_extend_adds_or_replaces_and_reacquire_begins_anew(house: Any, make: Any) -> None:
    lock = make(timeout=10)
    house.do(lock.acquire)
    assert house.do(lock.extend, 10) is True
    assert 15_000 < house.eye.pttl(house.key) <= 20_000
    assert house.do(lock.extend, 5, replace_ttl=True) is True
    assert 2000 < house.eye.pttl(house.key) <= 5000
    assert house.do(lock.reacquire) is True
    assert 5000 < house.eye.pttl(house.key) <= 10_000


def test_with_releases_and_raises_when_it_was_lost(house: Any, make: Any) -> None:
    lock = make(timeout=10)
    assert house.actor.within(lock, lambda inside: inside is lock and house.eye.exists(house.key))
    assert not house.eye.exists(house.key)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        house.actor.within(lock, lambda _: house.eye.delete(house.key))


def test_a_token_may_be_chosen(house: Any, make: Any) -> None:
    lock = make(timeout=10)
    assert house.do(lock.acquire, token="mine")
    assert house.eye.get(house.key) == "mine"
    assert house.do(lambda: lock.local.token) == b"mine"
    assert house.do(lock.acquire, blocking=False, token="mine") is False
    house.do(lock.release)


def test_a_token_may_be_handed_over(house: Any, make: Any) -> None:
    client = house.client()
    first, second = make(client, timeout=10), make(client, timeout=10, thread_local=False)
    house.do(first.acquire)

    def adopt() -> None:
        second.local.token = first.local.token

    house.do(adopt)
    house.do(second.release)
    assert not house.eye.exists(house.key)


def test_a_lock_that_is_not_thread_local_may_change_hands(house: Any, make: Any) -> None:
    lock, other = make(timeout=10, thread_local=False), house.new_actor()
    house.do(lock.acquire)
    other.do(lock.release)
    assert not house.eye.exists(house.key)


def test_blocking_waits(house: Any, make: Any) -> None:
    house.eye.set(house.key, "somebody")
    lock = make(timeout=10, sleep=0.01)
    before = house.calls("set")
    waiting = house.actor.start(lock.acquire)
    eventually(lambda: house.calls("set") >= before + 3)
    house.eye.delete(house.key)
    assert waiting.result(20) is True


# -- improvements -------------------------------------------------------------------------------------------


def ours(house: Any, **how: Any) -> Any:
    """Return interlock's lock."""
    return house.lock("ClientLock", **how)


@pytest.mark.parametrize("timeout", [0, -1, "5", True])
def test_a_timeout_that_would_mean_no_timeout_is_refused(house: Any, timeout: Any) -> None:
    with pytest.raises(InvalidArgument, match="timeout"):
        ours(house, timeout=timeout)


def test_other_arguments_out_of_range_are_refused(house: Any) -> None:
    for how in ({"sleep": -1}, {"sleep": "1"}, {"blocking_timeout": "1"}, {"thread_local": 1}):
        with pytest.raises(InvalidArgument, match=next(iter(how))):
            ours(house, **how)
    lock = ours(house, sleep=0, blocking_timeout=-1)
    for how in ({"blocking_timeout": float("nan")}, {"token": "\ud800"}):
        with pytest.raises(InvalidArgument, match=next(iter(how))):
            house.do(lock.acquire, **how)
    assert house.do(lock.acquire) is True
    assert house.do(lock.acquire, blocking=True) is False


def test_a_failed_release_raises_the_clients_error(house: Any) -> None:
    proxy = house.proxy()
    lock = ours(house, client=house.client_through(proxy, retries=0), timeout=10)
    house.do(lock.acquire)
    proxy.refuse()
    for method in (lock.release, lock.acquire, lock.locked, lock.owned, lock.reacquire):
        with pytest.raises(redis.exceptions.ConnectionError):
            house.do(method)
    proxy.restore()
    house.do(lock.release)
    assert not house.eye.exists(house.key)


def test_a_loss_may_be_logged_instead_of_raised(house: Any, caplog: pytest.LogCaptureFixture) -> None:
    lock = ours(house, timeout=30, raise_on_release_error=False)
    house.actor.within(lock, lambda _: house.eye.delete(house.key))
    assert "no longer owned" in caplog.text


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_valkey_s_exceptions_are_raised_for_its_clients(house: Any) -> None:
    lock = house.lock("ClientLock", client=house.client("valkey"), timeout=10)
    with pytest.raises(valkey.exceptions.LockError) as caught:
        house.do(lock.release)
    assert caught.value.lock_name == house.key


@pytest.mark.parametrize(
    ("ours_", "theirs"), [(ClientLock, redis.lock.Lock), (AsyncClientLock, redis.asyncio.lock.Lock)]
)
@pytest.mark.parametrize("name", ["__init__", "acquire", "release", "extend", "reacquire", "locked", "owned"])
def test_it_takes_the_same_arguments_and_has_the_same_methods(ours_: Any, theirs: Any, name: str) -> None:
    mine, other = (inspect.signature(getattr(kind, name)).parameters for kind in (ours_, theirs))
    assert list(mine) == list(other), name
    assert [each.default for each in mine.values()] == [each.default for each in other.values()], name
