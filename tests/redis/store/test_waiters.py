"""Who waits in a process and whose heir it is, in the orders that a server's answers and words may come in."""

from __future__ import annotations

import threading

import pytest

from interlock.core.queue import Granted
from interlock.stores.redis.waiters import WaiterRegistry
from tests.support.redis_waiters import Waiter, hung


def is_empty(bells: WaiterRegistry) -> bool:
    """Is nothing kept?"""
    heirs = bells._handoff
    return not any((bells.waiting, bells._granted, bells._io_timeout, heirs.after, heirs.before, bells._woken))


def test_an_heir_is_told_once_and_nothing_is_kept() -> None:
    bells = WaiterRegistry()
    bell = hung(bells, "b")
    bells.follow("a", "b", 7)
    assert bells.pass_on("a") == ("b", 7)
    bells.tell("b", 7)  # the server's word comes too
    assert bell.words == [Granted("b", 7)]
    assert bells.pass_on("b") is None
    assert is_empty(bells)


def test_who_is_told_before_it_has_a_bell_hears_it_with_the_bell() -> None:
    bells = WaiterRegistry()
    bells.expect("b")
    bells.follow("a", "b", 7)
    assert bells.pass_on("a") == ("b", 7)
    assert bells.register("b", Waiter()) == (0.0, Granted("b", 7))
    assert bells.pass_on("b") is None
    assert is_empty(bells)


def test_who_leaves_twice_without_having_held_it_lets_nobody_in() -> None:
    bells = WaiterRegistry()
    hung(bells, "b")
    bells.follow("a", "b", 7)
    bells.withdraw("b")
    bell = hung(bells, "c")
    bells.follow("b", "c", 8)  # the server has not heard yet that b left
    bells.withdraw("b")
    assert bell.words == []
    bells.tell("c", 8)
    bells.pass_on("c")
    assert is_empty(bells)


def test_the_heir_of_one_that_gives_up_follows_the_one_before() -> None:
    bells = WaiterRegistry()
    hung(bells, "b")
    bell = hung(bells, "c")
    bells.follow("a", "b", 7)
    bells.follow("b", "c", 8)
    bells.withdraw("b")
    assert bells.pass_on("a") == ("c", 8)
    assert bell.words == [Granted("c", 8)]


def test_who_gives_up_after_it_was_told_leaves_its_heir_to_the_server() -> None:
    bells = WaiterRegistry()
    hung(bells, "b")
    bell = hung(bells, "c")
    bells.follow("a", "b", 7)
    bells.follow("b", "c", 8)
    assert bells.pass_on("a") == ("b", 7)
    bells.withdraw("b")
    assert bell.words == []
    bells.tell("c", 8)
    assert bell.words == [Granted("c", 8)]
    bells.pass_on("c")
    assert is_empty(bells)


def test_a_new_heir_takes_the_place_of_one_that_expired() -> None:
    bells = WaiterRegistry()
    hung(bells, "b")
    bell = hung(bells, "c")
    bells.follow("a", "b", 7)
    bells.follow("a", "c", 8)
    bells.withdraw("b")
    assert bells.pass_on("a") == ("c", 8)
    assert bell.words == [Granted("c", 8)]
    bells.pass_on("c")
    assert is_empty(bells)


def test_who_does_not_wait_any_more_is_nobodys_heir() -> None:
    bells = WaiterRegistry()
    hung(bells, "b")
    bells.withdraw("b")
    bells.follow("a", "b", 7)
    assert bells.pass_on("a") is None
    assert is_empty(bells)


def test_an_interrupt_while_a_claim_is_told_does_not_make_it_deaf() -> None:
    bells = WaiterRegistry()
    interrupts = [KeyboardInterrupt()]

    def interrupt() -> None:
        if interrupts:
            raise interrupts.pop()

    bell = hung(bells, "b", interrupt)
    bells.follow("a", "b", 7)
    with pytest.raises(KeyboardInterrupt):
        bells.pass_on("a")
    bells.tell("b", 7)
    assert bell.words[-1] == Granted("b", 7)


def test_a_release_in_the_middle_of_another_step_does_not_block() -> None:
    bells = WaiterRegistry()
    last = hung(bells, "d")
    bells.follow("c", "d", 8)
    hung(bells, "b", lambda: bells.pass_on("c"))  # as the garbage collector may do
    bells.follow("a", "b", 7)
    thread = threading.Thread(target=bells.pass_on, args=("a",), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert last.words == [Granted("d", 8)]


def test_who_has_no_bell_yet_when_all_should_look_asks_as_soon_as_it_has_one() -> None:
    bells = WaiterRegistry()
    bells.expect("b")
    bells.wake_all()
    bells.wait_so_long("b", 5.0)
    assert bells.register("b", Waiter()) == (0.0, None)
    bells.wait_so_long("b", 5.0)
    assert bells.register("b", Waiter()) == (0.0, None)
    bells.withdraw("b")
    assert is_empty(bells)
