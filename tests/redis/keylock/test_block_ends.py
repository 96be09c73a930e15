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


def made(house: Any, name: str, **how: Any) -> Any:
    """Return a lock of the matrix with a long lease."""
    return house.lock(name, **({"timeout": MINUTE} if name == "ClientLock" else {"ttl": MINUTE}), **how)


@pytest.mark.parametrize("state", ["held", "released", "lost"])
@pytest.mark.parametrize("owner", ["same", "another", "another, the first ended"])
@pytest.mark.parametrize("way", [Block, Stack])
@pytest.mark.parametrize("name", LOCKS)
def test_an_end_ends_its_own_acquisition_or_warns(
    house: Any, name: str, way: type[Any], owner: str, state: str
) -> None:
    lock, other, guest = made(house, name), house.new_actor(), house.new_actor()
    block, theirs = way(house, lock), Block(house, lock)
    block.enter(house.actor)
    if state == "released":
        house.do(lock.release)
    elif state == "lost":
        house.eye.delete(house.key)
    if owner == "another, the first ended":
        house.actor.end()
    if state != "held":
        theirs.enter(guest)
        taken = house.eye.get(house.key)
    exact = way is Block or owner != "another"
    if exact:
        with suppress(LockLost, redis.exceptions.LockError):
            block.leave(house.actor if owner == "same" else other)
    else:
        with pytest.raises(RuntimeWarning, match="released nothing"):
            block.leave(other)
    if state == "held":
        assert bool(house.eye.exists(house.key)) is not exact
    else:
        assert house.eye.get(house.key) == taken
        theirs.leave(other)
        assert not house.eye.exists(house.key)


@pytest.mark.parametrize("name", LOCKS)
def test_an_early_release_leaves_anothers_lock_of_the_object(house: Any, name: str) -> None:
    how = {"KeyLock": {"shared": True}, "ClientLock": {"thread_local": False}}.get(name, {})
    lock, other = made(house, name, **how), house.new_actor()
    block, theirs = Block(house, lock), Block(house, lock)
    block.enter(house.actor)
    house.do(lock.release)
    theirs.enter(other)
    with suppress(redis.exceptions.LockError):  # redis-py says that it was released
        block.leave(house.actor)
    assert house.eye.exists(house.key)
    theirs.leave(other)
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("name", LOCKS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("entered", [Block, Stack])
def test_what_is_acquired_again_in_the_block_ends_with_it(house: Any, name: str, shared: bool, entered: Any) -> None:
    how = {"KeyLock": {"shared": shared}, "ClientLock": {"thread_local": not shared}}.get(name, {})
    lock = made(house, name, **how)
    block = entered(house, lock)
    block.enter(house.actor)
    for _ in range(2):
        house.do(lock.release)
        assert house.do(lock.acquire)
    block.leave(house.actor)
    assert not house.eye.exists(house.key)


@pytest.mark.parametrize("first", [0, 1])
def test_re_entrant_blocks_of_one_owner_end_in_any_order(house: Any, first: int) -> None:
    lock = made(house, "ReentrantKeyLock")
    blocks = [Block(house, lock), Block(house, lock)]
    for each in blocks:
        each.enter(house.actor)
    blocks[first].leave(house.actor)
    assert house.do(lock.owned)
    blocks[1 - first].leave(house.actor)
    assert not house.eye.exists(house.key)


def test_a_release_in_a_nested_block_is_not_done_twice(house: Any) -> None:
    lock = made(house, "ReentrantKeyLock")
    outer, inner = Block(house, lock), Block(house, lock)
    outer.enter(house.actor)
    inner.enter(house.actor)
    house.do(lock.release)
    inner.leave(house.actor)
    assert house.do(lock.owned)
    outer.leave(house.actor)
    assert not house.eye.exists(house.key)


def test_a_lost_block_leaves_what_a_later_block_acquired(house: Any) -> None:
    lock = made(house, "ClientLock")
    block, later = Block(house, lock), Stack(house, lock)
    block.enter(house.actor)
    house.eye.delete(house.key)
    later.enter(house.actor)
    with pytest.raises(redis.exceptions.LockError):
        block.leave(house.actor)
    assert house.eye.exists(house.key)
    later.leave(house.actor)
    assert not house.eye.exists(house.key)


def test_a_token_that_was_given_away_in_the_block_stays(house: Any) -> None:
    lock = made(house, "ClientLock")
    block = Block(house, lock)
    block.enter(house.actor)
    token = house.do(lambda: lock.token)
    house.do(setattr, lock, "token", None)
    with pytest.raises(redis.exceptions.LockError):
        block.leave(house.actor)
    assert house.eye.get(house.key) == token.decode()


@pytest.mark.parametrize("colour", ["threads"], indirect=True)
@pytest.mark.parametrize("name", ["KeyLock", "ReentrantKeyLock"])
def test_a_condition_s_with_releases_the_key(house: Any, name: str) -> None:
    condition = threading.Condition(made(house, name))
    with condition, suppress(RuntimeError):
        condition.notify()  # a lock that can be acquired again looks as if it was not held
    assert not house.eye.exists(house.key)
