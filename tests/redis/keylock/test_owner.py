"""The owner of a lock is one thread or task, unless the program chooses otherwise."""

import ctypes
import os
import threading
from typing import Any

import pytest

from interlock.redis import KeyLock, ReentrantKeyLock


def test_another_owner_can_not_release_by_the_same_object(env: Any) -> None:
    lock, other = env.lock(), env.new_actor()
    assert env.do(lock.acquire)
    assert other.do(lock.acquire) is False
    assert other.do(lock.release) is False
    assert other.do(lock.owned) is False
    assert env.do(lock.owned)
    assert env.do(lock.release)


def test_the_loser_can_not_release_the_next_owners_lock(env: Any) -> None:
    lock, other = env.lock(), env.new_actor()
    assert env.do(lock.acquire)
    env.eye.delete(env.key)
    assert other.do(lock.acquire)
    assert env.do(lock.release) is False
    assert other.do(lock.owned)
    assert other.do(lock.release)


def test_a_shared_lock_may_be_released_by_any_thread_or_task(env: Any) -> None:
    lock, other = env.lock(shared=True), env.new_actor()
    assert env.do(lock.acquire)
    assert other.do(lock.owned)
    assert other.do(lock.renew)
    assert other.do(lock.release) is True
    assert env.do(lock.release) is False


def test_a_token_is_handed_over_to_another_program(env: Any) -> None:
    first = env.lock(ttl=5)
    assert env.do(first.acquire)
    second = env.lock(token=env.do(lambda: first.token), ttl=20)
    other = env.new_actor()
    assert other.do(second.owned)
    assert other.do(second.renew)
    assert env.eye.pttl(env.key) > 10_000
    assert other.do(second.release) is True
    assert env.do(first.release) is False


def test_another_owner_ends_a_body_only_after_its_owner_ended(env: Any) -> None:
    lock, other = env.lock(), env.new_actor()
    begin, end = ("__enter__", "__exit__") if env.sync_or_async == "threads" else ("__aenter__", "__aexit__")
    env.do(getattr(lock, begin))
    with pytest.raises(RuntimeWarning, match="released nothing"):
        other.do(getattr(lock, end), None, None, None)
    assert env.eye.exists(env.key)
    env.actor.end()
    other.do(getattr(lock, end), None, None, None)
    assert not env.eye.exists(env.key)


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_threads_exclude_each_other_by_one_object(env: Any) -> None:
    lock = KeyLock(env.client(), env.key, poll=0.01)
    inside, most = [0], [0]

    def work() -> None:
        for _ in range(5):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["os.fork", "without Python's hooks"])
def test_a_forked_child_owns_nothing_of_its_parents(env: Any, fork: Any) -> None:
    """uWSGI forks by the C library, so Python's hooks do not run."""
    client = env.client()
    lock, again = KeyLock(client, env.key), ReentrantKeyLock(client, "lock:again")
    with lock, again:
        child = fork()
        if child == 0:
            mine = [each() for one in (lock, again) for each in (one.owned, one.release, one.renew, one.acquire)]
            lock.__exit__(None, None, None)
            os._exit(1 if any(mine) or lock.token or again.token else 0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert lock.owned()
        assert again.owned()


@pytest.mark.parametrize("sync_or_async", ["threads"], indirect=True)
def test_a_clock_that_a_test_froze_freezes_no_lock(env: Any) -> None:
    freezegun = pytest.importorskip("freezegun")
    lock, other = env.lock(ttl=0.5), env.lock()
    with freezegun.freeze_time("2012-01-14"):
        assert lock.acquire()
        assert other.acquire(timeout=0.1) is False
        assert other.acquire(timeout=20) is True  # after the lease
        assert lock.expires_in == 0
