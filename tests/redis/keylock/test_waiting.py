"""Waiting: only on request, never past the deadline, and with few requests."""

from typing import Any

import pytest

from interlock.testing.waiting import eventually, lasting


@pytest.mark.parametrize("how", [{"timeout": 20}, {"blocking": True}, {"timeout": None}, {"timeout": -1}])
def test_a_waiter_gets_the_lock_when_it_is_released(env: Any, how: dict[str, Any]) -> None:
    holder, waiter, other = env.lock(), env.lock(), env.new_actor()
    assert env.do(holder.acquire)
    before = env.calls("set")
    waiting = other.start(waiter.acquire, **how)
    eventually(lambda: env.calls("set") >= before + 3)
    assert not waiting.done()
    assert env.do(holder.release)
    assert waiting.result(20) is True


@pytest.mark.parametrize("how", [{}, {"blocking": False}, {"timeout": 0}])
def test_one_try_is_one_command(env: Any, how: dict[str, Any]) -> None:
    env.eye.set(env.key, "somebody")
    lock = env.lock()
    before = env.calls("set")
    assert env.do(lock.acquire, **how) is False
    assert env.calls("set") == before + 1


@pytest.mark.parametrize("poll", [0.01, 10.0])
def test_a_time_out_is_kept_also_when_the_pauses_are_longer(env: Any, poll: float) -> None:
    env.eye.set(env.key, "somebody")
    lock = env.lock(poll=poll)
    with lasting(0.3, 4.7):
        assert env.do(lock.acquire, timeout=0.3) is False


def test_acquire_overrides_the_lock_s_own_time_out(env: Any) -> None:
    env.eye.set(env.key, "somebody")
    lock = env.lock(timeout=None)
    assert env.do(lock.acquire, blocking=False) is False
    assert env.do(lock.acquire, timeout=0.01) is False


def test_a_waiter_asks_seldom_when_it_has_waited_for_a_while(env: Any) -> None:
    env.eye.set(env.key, "somebody")
    lock = env.lock()  # pauses double from 8 ms to 250 ms
    before = env.calls("set")
    assert env.do(lock.acquire, timeout=1.5) is False
    assert env.calls("set") - before <= 25
