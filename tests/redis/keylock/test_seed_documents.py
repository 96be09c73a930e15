"""The examples of documents 003 and 004 of the original scheme, on real servers."""

from typing import Any

import pytest


@pytest.mark.parametrize("ttl", [30.0, None])
def test_the_plain_session_answers_true_false_true_true(env: Any, ttl: float | None) -> None:
    lock = env.lock(client=env.client(decode_responses=True), key="test-lock", ttl=ttl)
    assert env.do(lock.acquire) is True
    assert env.do(lock.acquire) is False
    assert env.do(lock.release) is True
    assert env.do(lock.acquire) is True


def test_set_nx_ex_is_one_atomic_step_and_so_is_acquire(env: Any) -> None:
    assert env.eye.execute_command("SET", "lock:codehole", "true", "EX", 5, "NX")
    assert 0 < env.eye.ttl("lock:codehole") <= 5
    env.eye.delete("lock:codehole")
    before = env.calls("set")
    assert env.do(env.lock(key="lock:codehole", ttl=5).acquire)
    assert env.calls("set") == before + 1
    assert env.calls("expire") == env.calls("pexpire") == 0
    assert 0 < env.eye.pttl("lock:codehole") <= 5000


def test_work_past_its_lease_does_not_delete_the_next_lock(env: Any) -> None:
    first, second, third = env.lock(ttl=2), env.lock(), env.lock()
    assert env.do(first.acquire)
    assert env.do(second.acquire, timeout=20)  # after the first one's lease
    assert env.do(first.release) is False
    assert env.do(second.owned)
    assert env.do(third.acquire) is False
    assert env.do(second.release) is True
