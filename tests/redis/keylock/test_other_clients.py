"""Locks of redis-py and valkey-py on the same key exclude interlock's, and the reverse."""

from typing import Any

import pytest


@pytest.fixture(params=["redis", "valkey"])
def library(request: pytest.FixtureRequest) -> str:
    """The library of the other lock."""
    found: str = request.param
    return found


def test_a_lock_of_the_library_excludes_ours(env: Any, library: str) -> None:
    client = env.client(library)
    theirs, ours = env.call(client.lock, env.key, timeout=10), env.lock(client=client)
    assert env.do(theirs.acquire)
    assert env.do(ours.acquire) is False
    assert env.do(ours.locked) is True
    assert env.do(ours.release) is False
    env.do(theirs.release)
    assert env.do(ours.acquire) is True


def test_ours_excludes_a_lock_of_the_library(env: Any, library: str) -> None:
    client = env.client(library)
    theirs, ours = env.call(client.lock, env.key, timeout=10), env.lock(client=client)
    assert env.do(ours.acquire)
    assert env.do(theirs.acquire, blocking=False) is False
    assert env.do(theirs.locked) is True
    assert env.do(ours.renew)
    assert env.do(ours.release)
    assert env.do(theirs.acquire, blocking=False) is True
    env.do(theirs.release)


def test_a_waiter_of_either_kind_gets_the_lock_of_the_other(env: Any, library: str) -> None:
    client, other = env.client(library), env.new_actor()
    theirs, ours = env.call(client.lock, env.key, timeout=10, sleep=0.01), env.lock(client=client)
    env.do(theirs.acquire)
    waiting = other.start(ours.acquire, timeout=20)
    env.do(theirs.release)
    assert waiting.result(20) is True
    waiting = env.actor.start(theirs.acquire, blocking_timeout=20)
    assert other.do(ours.release)
    assert waiting.result(20) is True
    env.do(theirs.release)


def test_ours_with_the_library_s_token_speaks_for_its_lock(env: Any, library: str) -> None:
    client = env.client(library)
    theirs = env.call(client.lock, env.key, timeout=10)
    env.do(theirs.acquire)
    ours = env.lock(client=client, token=env.do(lambda: theirs.local.token), ttl=100)
    assert env.do(ours.owned)
    assert env.do(ours.renew)
    assert env.eye.pttl(env.key) > 50_000
    assert env.do(ours.release) is True
    with pytest.raises(Exception, match="no longer owned"):
        env.do(theirs.release)
