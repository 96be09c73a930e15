"""The examples of documents 003 and 004 of the original scheme, on real servers."""

from typing import Any

import pytest


@pytest.mark.parametrize("ttl", [30.0, None])
def test_the_plain_session_answers_true_false_true_true(house: Any, ttl: float | None) -> None:
    lock = house.lock(client=house.client(decode_responses=True), key="test-lock", ttl=ttl)
    assert house.do(lock.acquire) is True
    assert house.do(lock.acquire) is False
    assert house.do(lock.release) is True
    assert house.do(lock.acquire) is True


def test_set_nx_ex_is_one_atomic_step_and_so_is_acquire(house: Any) -> None:
    assert house.eye.execute_command("SET", "lock:codehole", "true", "EX", 5, "NX")
    assert 0 < house.eye.ttl("lock:codehole") <= 5
    house.eye.delete("lock:codehole")
    before = house.calls("set")
    assert house.do(house.lock(key="lock:codehole", ttl=5).acquire)
    assert house.calls("set") == before + 1
    assert house.calls("expire") == house.calls("pexpire") == 0
    assert 0 < house.eye.pttl("lock:codehole") <= 5000


def test_work_past_its_lease_does_not_delete_the_next_lock(house: Any) -> None:
    first, second, third = house.lock(ttl=2), house.lock(), house.lock()
    assert house.do(first.acquire)
    assert house.do(second.acquire, timeout=20)  # after the first one's lease
    assert house.do(first.release) is False
    assert house.do(second.owned)
    assert house.do(third.acquire) is False
    assert house.do(second.release) is True
