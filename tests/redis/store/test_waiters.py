"""Who waits in a process and whose successor it is, in the orders that a server's answers and words may come in."""

from __future__ import annotations

import threading

import pytest

from interlock.core.queue import Granted
from interlock.stores.redis.waiters import RedisWaiters
from tests.support.redis_waiters import Waiter, hung


def is_empty(registry: RedisWaiters) -> bool:
    """Is nothing kept?"""
    successors = registry._handoff
    return not any(
        (
            registry.ids,
            registry._granted,
            registry._recheck_after,
            successors.after,
            successors.before,
            registry._woken,
        )
    )


def test_an_successor_is_told_once_and_nothing_is_kept() -> None:
    registry = RedisWaiters()
    waiter = hung(registry, "b")
    registry.follow("a", "b", 7)
    assert registry.pass_on("a") == ("b", 7)
    registry.notify("b", 7)  # the server's word comes too
    assert waiter.words == [Granted("b", 7)]
    assert registry.pass_on("b") is None
    assert is_empty(registry)


def test_a_claim_that_is_told_before_it_has_a_waiter_hears_it_with_the_waiter() -> None:
    registry = RedisWaiters()
    registry.expect("b")
    registry.follow("a", "b", 7)
    assert registry.pass_on("a") == ("b", 7)
    assert registry.register("b", Waiter()) == (0.0, Granted("b", 7))
    assert registry.pass_on("b") is None
    assert is_empty(registry)


def test_who_leaves_twice_without_having_held_it_lets_nobody_in() -> None:
    registry = RedisWaiters()
    hung(registry, "b")
    registry.follow("a", "b", 7)
    registry.withdraw("b")
    waiter = hung(registry, "c")
    registry.follow("b", "c", 8)  # the server has not heard yet that b left
    registry.withdraw("b")
    assert waiter.words == []
    registry.notify("c", 8)
    registry.pass_on("c")
    assert is_empty(registry)


def test_the_successor_of_one_that_gives_up_follows_the_one_before() -> None:
    registry = RedisWaiters()
    hung(registry, "b")
    waiter = hung(registry, "c")
    registry.follow("a", "b", 7)
    registry.follow("b", "c", 8)
    registry.withdraw("b")
    assert registry.pass_on("a") == ("c", 8)
    assert waiter.words == [Granted("c", 8)]


def test_who_gives_up_after_it_was_told_leaves_its_successor_to_the_server() -> None:
    registry = RedisWaiters()
    hung(registry, "b")
    waiter = hung(registry, "c")
    registry.follow("a", "b", 7)
    registry.follow("b", "c", 8)
    assert registry.pass_on("a") == ("b", 7)
    registry.withdraw("b")
    assert waiter.words == []
    registry.notify("c", 8)
    assert waiter.words == [Granted("c", 8)]
    registry.pass_on("c")
    assert is_empty(registry)


def test_a_new_successor_takes_the_place_of_one_that_expired() -> None:
    registry = RedisWaiters()
    hung(registry, "b")
    waiter = hung(registry, "c")
    registry.follow("a", "b", 7)
    registry.follow("a", "c", 8)
    registry.withdraw("b")
    assert registry.pass_on("a") == ("c", 8)
    assert waiter.words == [Granted("c", 8)]
    registry.pass_on("c")
    assert is_empty(registry)


def test_who_does_not_wait_any_more_is_nobodys_successor() -> None:
    registry = RedisWaiters()
    hung(registry, "b")
    registry.withdraw("b")
    registry.follow("a", "b", 7)
    assert registry.pass_on("a") is None
    assert is_empty(registry)


def test_an_interrupt_while_a_claim_is_told_does_not_make_it_deaf() -> None:
    registry = RedisWaiters()
    interrupts = [KeyboardInterrupt()]

    def interrupt() -> None:
        if interrupts:
            raise interrupts.pop()

    waiter = hung(registry, "b", interrupt)
    registry.follow("a", "b", 7)
    with pytest.raises(KeyboardInterrupt):
        registry.pass_on("a")
    registry.notify("b", 7)
    assert waiter.words[-1] == Granted("b", 7)


def test_a_release_in_the_middle_of_another_step_does_not_block() -> None:
    registry = RedisWaiters()
    last = hung(registry, "d")
    registry.follow("c", "d", 8)
    hung(registry, "b", lambda: registry.pass_on("c"))  # as the garbage collector may do
    registry.follow("a", "b", 7)
    thread = threading.Thread(target=registry.pass_on, args=("a",), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert last.words == [Granted("d", 8)]


def test_a_claim_without_a_waiter_when_all_should_look_asks_as_soon_as_it_has_one() -> None:
    registry = RedisWaiters()
    registry.expect("b")
    registry.wake_all()
    registry.wait_so_long("b", 5.0)
    assert registry.register("b", Waiter()) == (0.0, None)
    registry.wait_so_long("b", 5.0)
    assert registry.register("b", Waiter()) == (0.0, None)
    registry.withdraw("b")
    assert is_empty(registry)
