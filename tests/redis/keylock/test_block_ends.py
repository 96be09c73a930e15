"""The matrix of block ends for the locks of one key: ways to enter x locks x who ends x what became of the key."""

import threading
from contextlib import suppress
from typing import Any

import pytest
import redis

from interlock.core.errors import LockLost
from interlock.testing.contract.blocks import Block, Stack

LOCKS = ["KeyLock", "ReentrantKeyLock", "ClientLock"]
MINUTE = 60


def made(env: Any, name: str, **how: Any) -> Any:
    """Return a lock of the matrix with a long lease."""
    return env.lock(name, **({"timeout": MINUTE} if name == "ClientLock" else {"ttl": MINUTE}), **how)


@pytest.mark.parametrize("state", ["held", "released", "lost"])
@pytest.mark.parametrize("owner", ["same", "another", "another, the first ended"])
@pytest.mark.parametrize("way", [Block, Stack])
@pytest.mark.parametrize("name", LOCKS)
def test_an_end_ends_its_own_acquisition_or_warns(
    env: Any, name: str, way: type[Any], owner: str, state: str
) -> None:
    lock, other, guest = made(env, name), env.new_actor(), env.new_actor()
    block, theirs = way(env, lock), Block(env, lock)
    block.enter(env.actor)
    if state == "released":
        env.do(lock.release)
    elif state == "lost":
        env.eye.delete(env.key)
    if owner == "another, the first ended":
        env.actor.end()
    if state != "held":
        theirs.enter(guest)
        taken = env.eye.get(env.key)
    exact = way is Block or owner != "another"
    if exact:
        with suppress(LockLost, redis.exceptions.LockError):
            block.leave(env.actor if owner == "same" else other)
    else:
        with pytest.raises(RuntimeWarning, match="released nothing"):
            block.leave(other)
    if state == "held":
        assert bool(env.eye.exists(env.key)) is not exact
    else:
        assert env.eye.get(env.key) == taken
        theirs.leave(other)
        assert not env.eye.exists(env.key)


@pytest.mark.parametrize("name", LOCKS)
def test_an_early_release_leaves_anothers_lock_of_the_object(env: Any, name: str) -> None:
    how = {"KeyLock": {"shared": True}, "ClientLock": {"thread_local": False}}.get(name, {})
    lock, other = made(env, name, **how), env.new_actor()
    block, theirs = Block(env, lock), Block(env, lock)
    block.enter(env.actor)
    env.do(lock.release)
    theirs.enter(other)
    with suppress(redis.exceptions.LockError):  # redis-py says that it was released
        block.leave(env.actor)
    assert env.eye.exists(env.key)
    theirs.leave(other)
    assert not env.eye.exists(env.key)


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("entered", [Block, Stack])
def test_what_is_acquired_again_in_the_block_ends_with_it(env: Any, name: str, shared: bool, entered: Any) -> None:
    how = {"KeyLock": {"shared": shared}, "ClientLock": {"thread_local": not shared}}.get(name, {})
    lock = made(env, name, **how)
    block = entered(env, lock)
    block.enter(env.actor)
    for _ in range(2):
        env.do(lock.release)
        assert env.do(lock.acquire)
    block.leave(env.actor)
    assert not env.eye.exists(env.key)


@pytest.mark.parametrize("first", [0, 1])
def test_re_entrant_blocks_of_one_owner_end_in_any_order(env: Any, first: int) -> None:
    lock = made(env, "ReentrantKeyLock")
    blocks = [Block(env, lock), Block(env, lock)]
    for each in blocks:
        each.enter(env.actor)
    blocks[first].leave(env.actor)
    assert env.do(lock.owned)
    blocks[1 - first].leave(env.actor)
    assert not env.eye.exists(env.key)


def test_a_release_in_a_nested_block_is_not_done_twice(env: Any) -> None:
    lock = made(env, "ReentrantKeyLock")
    outer, inner = Block(env, lock), Block(env, lock)
    outer.enter(env.actor)
    inner.enter(env.actor)
    env.do(lock.release)
    inner.leave(env.actor)
    assert env.do(lock.owned)
    outer.leave(env.actor)
    assert not env.eye.exists(env.key)


def test_a_lost_block_leaves_what_a_later_block_acquired(env: Any) -> None:
    lock = made(env, "ClientLock")
    block, later = Block(env, lock), Stack(env, lock)
    block.enter(env.actor)
    env.eye.delete(env.key)
    later.enter(env.actor)
    with pytest.raises(redis.exceptions.LockError):
        block.leave(env.actor)
    assert env.eye.exists(env.key)
    later.leave(env.actor)
    assert not env.eye.exists(env.key)


def test_a_token_that_was_given_away_in_the_block_stays(env: Any) -> None:
    lock = made(env, "ClientLock")
    block = Block(env, lock)
    block.enter(env.actor)
    token = env.do(lambda: lock.token)
    env.do(setattr, lock, "token", None)
    with pytest.raises(redis.exceptions.LockError):
        block.leave(env.actor)
    assert env.eye.get(env.key) == token.decode()


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock"])
def test_a_condition_s_with_releases_the_key(env: Any, name: str) -> None:
    condition = threading.Condition(made(env, name))
    with condition, suppress(RuntimeError):
        condition.notify()  # a lock that can be acquired again looks as if it was not held
    assert not env.eye.exists(env.key)
