"""Locks of redis-py and valkey-py on the same key exclude interlock's, and the reverse."""

from typing import Any

import pytest


@pytest.fixture(params=["redis", "valkey"])
def library(request: pytest.FixtureRequest) -> str:
    """The library of the other lock."""
    found: str = request.param
    return found


def test_a_lock_of_the_library_excludes_ours(house: Any, library: str) -> None:
    client = house.client(library)
    theirs, ours = house.call(client.lock, house.key, timeout=10), house.lock(client=client)
    assert house.do(theirs.acquire)
    assert house.do(ours.acquire) is False
    assert house.do(ours.locked) is True
    assert house.do(ours.release) is False
    house.do(theirs.release)
    assert house.do(ours.acquire) is True


def test_ours_excludes_a_lock_of_the_library(house: Any, library: str) -> None:
    client = house.client(library)
    theirs, ours = house.call(client.lock, house.key, timeout=10), house.lock(client=client)
    assert house.do(ours.acquire)
    assert house.do(theirs.acquire, blocking=False) is False
    assert house.do(theirs.locked) is True
    assert house.do(ours.renew)
    assert house.do(ours.release)
    assert house.do(theirs.acquire, blocking=False) is True
    house.do(theirs.release)


def test_a_waiter_of_either_kind_gets_the_lock_of_the_other(house: Any, library: str) -> None:
    client, other = house.client(library), house.new_actor()
    theirs, ours = house.call(client.lock, house.key, timeout=10, sleep=0.01), house.lock(client=client)
    house.do(theirs.acquire)
    waiting = other.start(ours.acquire, timeout=20)
    house.do(theirs.release)
    assert waiting.result(20) is True
    waiting = house.actor.start(theirs.acquire, blocking_timeout=20)
    assert other.do(ours.release)
    assert waiting.result(20) is True
    house.do(theirs.release)


def test_ours_with_the_library_s_token_speaks_for_its_lock(house: Any, library: str) -> None:
    client = house.client(library)
    theirs = house.call(client.lock, house.key, timeout=10)
    house.do(theirs.acquire)
    ours = house.lock(client=client, token=house.do(lambda: theirs.local.token), ttl=100)
    assert house.do(ours.owned)
    assert house.do(ours.renew)
    assert house.eye.pttl(house.key) > 50_000
    assert house.do(ours.release) is True
    with pytest.raises(Exception, match="no longer owned"):
        house.do(theirs.release)
