"""The lock with an identity: document 002 of the original scheme, made safe by an optimistic transaction."""

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio

from interlock import StoreError
from interlock.redis import AsyncIdentityLock


class Meddling:
    """A client whose transactions call a function between GET and DEL."""

    meddle = staticmethod(lambda: None)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        """Return a pipeline that calls the function before `multi`."""
        pipe = super().pipeline(*args, **options)
        begin = pipe.multi

        def late() -> None:
            self.meddle()
            begin()

        pipe.multi = late
        return pipe


class Meddled(Meddling, redis.Redis):
    """For threads."""


class AsyncMeddled(Meddling, redis.asyncio.Redis):
    """For tasks."""


@pytest.fixture
def meddled(house: Any) -> Any:
    """A client that can call a function between GET and DEL."""
    kind = Meddled if house.colour == "threads" else AsyncMeddled
    client = house.call(kind, host=house.server.host, port=house.server.port)
    house.keep(client)
    return client


def test_release_says_true_if_released_or_free_and_false_if_it_is_another_s(house: Any) -> None:
    lock = house.lock("IdentityLock")
    assert house.do(lock.release, "client-1") is True  # free already
    assert house.do(lock.acquire, "client-1", 10) is True
    assert house.eye.get(house.key) == "client-1"
    assert 9 <= house.eye.ttl(house.key) <= 10
    assert house.do(lock.acquire, "client-2", 10) is False
    assert house.do(lock.release, "client-2") is False
    assert house.do(lock.release, "client-1") is True
    assert house.do(lock.release, "client-1") is True
    assert not house.eye.exists(house.key)


def test_the_same_identity_does_not_get_it_twice(house: Any) -> None:
    lock = house.lock("IdentityLock")
    assert house.do(lock.acquire, "me")
    assert house.do(lock.acquire, "me") is False
    assert house.do(lock.owned, "me") is True
    assert house.do(lock.owned, "you") is False
    assert house.do(lock.locked) is True


def test_a_program_that_starts_again_gives_back_what_it_held(house: Any) -> None:
    assert house.do(house.lock("IdentityLock").acquire, "worker-7", None)
    assert house.eye.ttl(house.key) == -1
    assert house.do(house.lock("IdentityLock").release, b"worker-7") is True
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("then", ["client-2", None])
def test_a_key_that_changes_between_get_and_del_is_not_deleted(house: Any, meddled: Any, then: str | None) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    meddle = iter([lambda: house.eye.set(house.key, then) if then else house.eye.delete(house.key)])
    meddled.meddle = lambda: next(meddle, lambda: None)()
    assert house.do(lock.release, "client-1") is (then is None)
    assert house.eye.get(house.key) == then
    assert house.calls("exec") == 1


def test_a_key_that_never_comes_to_rest_is_an_error(house: Any, meddled: Any) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    meddled.meddle = lambda: house.eye.set(house.key, "client-1")
    with pytest.raises(StoreError, match="call release"):
        house.do(lock.release, "client-1")
    assert house.eye.get(house.key) == "client-1"


def test_a_connection_that_breaks_while_it_watches_is_no_harm(house: Any, meddled: Any) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    kills = iter([lambda: house.eye.client_kill_filter(_type="normal", skipme=True)])
    meddled.meddle = lambda: next(kills, lambda: None)()
    try:
        assert house.do(lock.release, "client-1") is True
    except StoreError:  # it may have been the connection of EXEC
        assert house.do(lock.release, "client-1") is True
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_release_leaves_no_watch_and_can_be_called_again(house: Any) -> None:
    client = house.client()
    lock = AsyncIdentityLock(client, house.key)

    async def session() -> None:
        for steps in range(12):
            await lock.acquire("me")
            task = asyncio.create_task(lock.release("me"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                pass
            assert await lock.release("me") is True
            assert not await lock.locked()

    house.call(session)
