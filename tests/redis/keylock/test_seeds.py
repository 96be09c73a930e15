"""The examples of documents 003 and 004 of the original scheme, on real servers."""

from typing import Any

import pytest

from interlock.testing.waiting import eventually


@pytest.mark.parametrize("ttl", [30.0, None])
def test_the_plain_session_answers_true_false_true_true(house: Any, ttl: float | None) -> None:
    lock = house.lock(client=house.client(decode_responses=True), key="test-lock", ttl=ttl)
    assert house.do(lock.acquire) is True
    assert house.do(lock.acquire) is False
    assert house.do(lock.release) is True
    assert house.do(lock.acquire) is True


def test_without_a_time_limit_the_key_stays_for_ever(house: Any) -> None:
    lock = house.lock(ttl=None)
    assert house.do(lock.acquire)
    assert house.eye.pttl(house.key) == -1
    assert house.do(lambda: lock.expires_in) is None


def test_to_release_a_lock_that_was_never_acquired_says_false(house: Any) -> None:
    assert house.do(house.lock().release) is False


def test_setnx_and_del_leave_a_lock_for_ever_when_the_program_dies_between(house: Any) -> None:
    house.eye.execute_command("SETNX", house.key, "true")  # and here it dies, before EXPIRE
    assert house.eye.pttl(house.key) == -1
    assert house.do(house.lock().acquire) is False


def test_set_nx_ex_is_one_atomic_step_and_so_is_acquire(house: Any) -> None:
    assert house.eye.execute_command("SET", "lock:codehole", "true", "EX", 5, "NX")
    assert 0 < house.eye.ttl("lock:codehole") <= 5
    house.eye.delete("lock:codehole")
    before = house.calls("set")
    assert house.do(house.lock(key="lock:codehole", ttl=5).acquire)
    assert house.calls("set") == before + 1
    assert house.calls("expire") == house.calls("pexpire") == 0
    assert 0 < house.eye.pttl("lock:codehole") <= 5000


def test_a_lock_taken_by_set_nx_ex_excludes_a_keylock_until_it_is_deleted(house: Any) -> None:
    lock = house.lock(key="lock:codehole")
    house.eye.execute_command("SET", "lock:codehole", "true", "EX", 5, "NX")
    assert house.do(lock.acquire) is False
    house.eye.delete("lock:codehole")
    assert house.do(lock.acquire) is True


def test_work_that_outlives_its_lease_deletes_the_next_ones_lock_when_it_releases_by_del(house: Any) -> None:
    house.eye.set(house.key, "true", nx=True, px=100)  # the first
    eventually(lambda: house.eye.set(house.key, "true", nx=True, ex=5))  # its time is over, the second has it
    house.eye.delete(house.key)  # the first is done at last
    assert house.eye.set(house.key, "true", nx=True, ex=5)  # the third holds it beside the second


def test_work_that_outlives_its_lease_does_not_delete_the_next_ones_lock(house: Any) -> None:
    first, second, third = house.lock(ttl=2), house.lock(), house.lock()
    assert house.do(first.acquire)
    assert house.do(second.acquire, timeout=20)  # when the first one's time is over
    assert house.do(first.release) is False
    assert house.do(second.owned)
    assert house.do(third.acquire) is False
    assert house.do(second.release) is True


def test_the_token_is_random_and_new_for_each_acquisition(house: Any) -> None:
    lock, tokens = house.lock(), set()
    for _ in range(20):
        assert house.do(lock.acquire)
        assert house.eye.get(house.key) == house.do(lambda: lock.token)
        tokens.add(house.eye.get(house.key))
        assert house.do(lock.release)
    assert len(tokens) == 20
    assert all(len(token) == 32 for token in tokens)
    assert house.do(lambda: lock.token) is None


def test_who_did_not_get_the_lock_can_not_release_it(house: Any) -> None:
    mine, other = house.lock(), house.lock()
    assert house.do(mine.acquire)
    assert house.do(other.acquire) is False
    assert house.do(other.release) is False
    assert house.do(mine.owned)
