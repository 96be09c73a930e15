"""The drop-in for `client.lock(...)`: methods and exceptions of the library's own lock, not its faults."""

import asyncio
import inspect
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey

from interlock import InvalidArgument
from interlock.redis import AsyncClientLock, ClientLock
from interlock.testing.waiting import eventually, moment, since


@pytest.fixture(params=["the library's own", "ClientLock"])
def make(request: pytest.FixtureRequest, house: Any) -> Any:
    """Makes a lock by `client.lock`: the library's, or ours by one argument more."""

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


def test_what_is_not_locked_can_not_be_released_or_extended(house: Any, make: Any) -> None:
    lock = make(timeout=10)
    for method, arguments in ((lock.release, ()), (lock.extend, (10,)), (lock.reacquire, ())):
        with pytest.raises(redis.exceptions.LockError, match="Cannot") as caught:
            house.do(method, *arguments)
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


def test_with_does_not_run_its_body_without_the_lock(house: Any, make: Any) -> None:
    house.eye.set(house.key, "somebody")
    with pytest.raises(redis.exceptions.LockError, match="Unable to acquire lock within the time specified"):
        house.actor.within(make(timeout=10, blocking_timeout=0.05), lambda _: pytest.fail("it ran"))


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


def test_a_lock_that_is_not_thread_local_may_be_released_by_another(house: Any, make: Any) -> None:
    lock, other = make(timeout=10, thread_local=False), house.new_actor()
    house.do(lock.acquire)
    other.do(lock.release)
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_task_may_release_what_another_acquired(house: Any, make: Any) -> None:
    lock, other = make(timeout=10), house.new_actor()
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


# -- what is better -----------------------------------------------------------------------------------------


def ours(house: Any, **how: Any) -> Any:
    """Return a lock of ours."""
    return house.lock("ClientLock", **how)


def test_a_blocking_timeout_shorter_than_sleep_is_still_waited_for(house: Any) -> None:
    house.eye.set(house.key, "somebody", px=300)
    started = moment()
    assert house.do(ours(house, timeout=10, sleep=5).acquire, blocking_timeout=1) is True
    assert since(started) < 4


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


def test_a_short_timeout_is_not_rounded_to_nothing(house: Any) -> None:
    house.do(ours(house, timeout=0.0001).acquire, blocking=False)
    eventually(lambda: not house.eye.exists(house.key))


def test_a_lost_reply_leaves_no_orphan(house: Any) -> None:
    proxy = house.proxy()
    lock = ours(house, client=house.client_through(proxy), timeout=10)
    house.do(lock.locked)
    proxy.cut_after_request(b"SET")
    assert house.do(lock.acquire, blocking=False) is True
    house.do(lock.release)
    assert not house.eye.exists(house.key)


def test_a_failed_release_raises_what_the_client_raises_and_can_be_tried_again(house: Any) -> None:
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


def test_who_lost_the_lock_to_another_user_of_the_object_does_not_release_that_ones(house: Any) -> None:
    lock, other = ours(house, timeout=30), house.new_actor()
    house.do(lock.acquire)
    house.eye.delete(house.key)
    other.do(lock.acquire)
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        house.do(lock.release)
    assert other.do(lock.owned)
    other.do(lock.release)


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_thread_that_holds_nothing_is_told_so(house: Any) -> None:
    lock, other = ours(house, timeout=30), house.new_actor()
    house.do(lock.acquire)
    for method in (lock.release, lock.reacquire):
        with pytest.raises(redis.exceptions.LockError, match="Cannot"):
            other.do(method)
    assert other.do(lambda: lock.local.token) is None


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_acquire_leaves_nothing(house: Any) -> None:
    proxy = house.proxy()
    lock = ours(house, client=house.client_through(proxy), timeout=30)
    proxy.delay(0.05)

    async def session() -> None:
        await lock.locked()
        sent = len(proxy.sent)
        task = asyncio.create_task(lock.acquire())
        await house.until(lambda: b"SET" in proxy.sent[sent:])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    house.call(session)
    assert not house.eye.exists(house.key)


def test_a_loss_may_be_logged_instead_of_raised(house: Any, caplog: pytest.LogCaptureFixture) -> None:
    lock = ours(house, timeout=30, raise_on_release_error=False)
    house.actor.within(lock, lambda _: house.eye.delete(house.key))
    assert "no longer owned" in caplog.text


def test_a_lock_without_a_token_any_more_holds_nothing(house: Any) -> None:
    lock = ours(house, timeout=30)
    house.do(lock.acquire)

    def forget() -> None:
        lock.local.token = None
        lock.local.token = None

    house.do(forget)
    assert house.do(lock.owned) is False
    assert house.eye.exists(house.key)


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_what_the_user_may_not_do_is_the_client_s_error(house: Any) -> None:
    house.eye.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", "~*", "+@connection", "+set", "+get")
    lock = house.lock("ClientLock", client=house.client(username="app", password="secret"), timeout=10)
    lock.acquire()
    with pytest.raises(redis.exceptions.NoPermissionError):
        lock.release()
    house.eye.execute_command("ACL", "SETUSER", "app", "+@all")
    lock.release()
    house.eye.execute_command("ACL", "DELUSER", "app")


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_valkey_s_exceptions_are_raised_for_its_clients(house: Any) -> None:
    lock = house.lock("ClientLock", client=house.client("valkey"), timeout=10)
    with pytest.raises(valkey.exceptions.LockError) as caught:
        house.do(lock.release)
    assert caught.value.lock_name == house.key


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_a_client_of_no_known_library_gets_the_errors_of_this_one(house: Any) -> None:
    from interlock import LockLost, NotHeld

    inner = house.client()

    class Client:
        """Asks another client."""

        def execute_command(self, *words: Any, **options: Any) -> Any:
            return inner.execute_command(*words, **options)

        def pipeline(self) -> None:
            """Only to look like a client."""

    lock = ClientLock(Client(), house.key, timeout=10)
    with pytest.raises(NotHeld):
        lock.release()
    with pytest.raises(LockLost):
        with lock:
            house.eye.delete(house.key)


def test_a_name_may_be_a_memoryview(server: Any) -> None:
    with redis.Redis(host=server.host, port=server.port) as client:
        with client.lock(memoryview(b"lock:view"), timeout=10, lock_class=ClientLock) as lock:
            assert lock.name == b"lock:view"


@pytest.mark.parametrize(
    ("ours_", "theirs"), [(ClientLock, redis.lock.Lock), (AsyncClientLock, redis.asyncio.lock.Lock)]
)
def test_it_takes_the_same_arguments_and_has_the_same_methods(ours_: Any, theirs: Any) -> None:
    for name in ("__init__", "acquire", "release", "extend", "reacquire", "locked", "owned"):
        mine, other = (inspect.signature(getattr(kind, name)).parameters for kind in (ours_, theirs))
        assert list(mine) == list(other), name
        assert [each.default for each in mine.values()] == [each.default for each in other.values()], name
