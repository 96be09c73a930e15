"""The lock with an identity: document 002 of the original scheme, made safe by an optimistic transaction."""

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio

from interlock import StoreError
from interlock.redis import AsyncIdentityLock, IdentityLock


class Meddling:
    """A client with whose transactions somebody meddles between GET and DEL."""

    meddle = staticmethod(lambda: None)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        """Return one whose `multi` comes late."""
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


class SeedsLock:
    """The lock of document 002, letter by letter."""

    def __init__(self, client: Any, key: str, between: Any) -> None:
        self.client, self.key, self.between = client, key, between

    def release(self, input_identity: str) -> bool:
        """Read, compare, delete."""
        lock_identity = self.client.get(self.key)
        if lock_identity is None:
            return True
        if input_identity == lock_identity:
            self.between()
            self.client.delete(self.key)
            return True
        return False


@pytest.fixture
def meddled(house: Any) -> Any:
    """A client with a place to meddle."""
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


def test_get_then_del_deletes_the_lock_of_another_when_the_key_changes_between(house: Any) -> None:
    house.eye.set(house.key, "client-1")
    seeds = SeedsLock(house.eye, house.key, between=lambda: house.eye.set(house.key, "client-2"))
    assert seeds.release("client-1") is True
    assert not house.eye.exists(house.key)  # client-2 holds it no more, and does not know


@pytest.mark.parametrize("then", ["client-2", None])
def test_a_key_that_changes_between_get_and_del_is_not_deleted(house: Any, meddled: Any, then: str | None) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    meddle = iter([lambda: house.eye.set(house.key, then) if then else house.eye.delete(house.key)])
    meddled.meddle = lambda: next(meddle, lambda: None)()
    assert house.do(lock.release, "client-1") is (then is None)
    assert house.eye.get(house.key) == then
    assert house.calls("exec") == 1


def test_a_key_that_was_written_again_by_its_owner_is_released_at_the_second_look(house: Any, meddled: Any) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    renewals = iter([lambda: house.eye.set(house.key, "client-1", ex=60)])
    meddled.meddle = lambda: next(renewals, lambda: None)()
    assert house.do(lock.release, "client-1") is True
    assert house.calls("exec") == 2
    assert not house.eye.exists(house.key)


def test_a_key_that_never_comes_to_rest_is_an_error(house: Any, meddled: Any) -> None:
    lock = house.lock("IdentityLock", client=meddled)
    house.do(lock.acquire, "client-1")
    meddled.meddle = lambda: house.eye.set(house.key, "client-1")
    with pytest.raises(StoreError, match="call release"):
        house.do(lock.release, "client-1")
    assert house.eye.get(house.key) == "client-1"


def test_unwatch_is_sent_on_the_way_out(house: Any) -> None:
    lock = house.lock("IdentityLock")
    house.do(lock.release, "client-1")
    assert house.calls("watch") == house.calls("unwatch") == 1
    house.eye.set(house.key, "client-2")
    house.do(lock.release, "client-1")
    assert house.calls("watch") == house.calls("unwatch") == 2
    assert house.calls("multi") == 0


def test_a_transaction_is_refused_when_the_key_it_watches_changes(house: Any) -> None:
    """The session of document 002: GET, WATCH, MULTI, SET, another's SET, EXEC answers nil."""
    house.eye.set("title", "name")
    with house.server.wire() as a, house.server.wire() as b:
        assert a.ask("GET", "title") == "name"
        assert a.ask("WATCH", "title") == "OK"
        assert a.ask("MULTI") == "OK"
        assert a.ask("SET", "title", "val") == "QUEUED"
        assert b.ask("SET", "title", "111") == "OK"
        assert a.ask("EXEC") is None
        assert a.ask("GET", "title") == "111"


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


@pytest.mark.parametrize("colour", ["tasks"], indirect=True)
def test_a_cancelled_acquire_leaves_nothing_and_takes_nothing_away(house: Any) -> None:
    proxy = house.proxy()
    lock = house.lock("IdentityLock", client=house.client_through(proxy))
    proxy.delay(0.05)

    async def session() -> None:
        await lock.locked()
        sent = len(proxy.sent)
        task = asyncio.create_task(lock.acquire("me"))
        await house.until(lambda: b"SET" in proxy.sent[sent:])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    house.call(session)
    assert not house.eye.exists(house.key)
    house.eye.set(house.key, "me")
    house.call(session)
    assert house.eye.get(house.key) == "me"


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
def test_decoded_answers_are_compared_as_well(house: Any) -> None:
    with redis.Redis(host=house.server.host, port=house.server.port, decode_responses=True) as client:
        lock = IdentityLock(client, house.key)
        assert lock.acquire("schlüssel")
        assert lock.release("schloss") is False
        assert lock.release("schlüssel") is True
