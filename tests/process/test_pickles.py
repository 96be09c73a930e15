"""Locks that are sent to other processes."""

import asyncio
import multiprocessing
import pickle
from pathlib import Path

import pytest

import interlock
from interlock.core.errors import InvalidArgument


def try_it(lock: interlock.Lock) -> bool:
    """Tell, in another process, whether the lock could be had."""
    grant = lock.acquire(False)
    return grant is not None and grant.release()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/locks"


def test_a_lock_sent_to_another_process_is_the_same_lock(url: str) -> None:
    locks = interlock.connect(url, namespace="shop", ttl=7)
    kinds = [
        locks.lock("a"),
        locks.rlock("b"),
        locks.semaphore("c", 1),
        locks.rwlock("d").write(),
        locks.all("e", "f"),
    ]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for lock in (*kinds, locks.all("e", "f")):
            assert pool.apply(try_it, (lock,)) is True
            with lock:
                assert pool.apply(try_it, (lock,)) is False


def test_pickled_locks_keep_their_settings_and_one_connection(url: str) -> None:
    locks = interlock.connect(url, namespace="shop", ttl=7)
    first, second = (pickle.loads(pickle.dumps(locks.lock(name, ttl=3, timeout=0.5))) for name in "ab")
    with first, pytest.raises(interlock.LockTimeout, match=r"0\.5 s"):
        with locks.lock("a", timeout=0.5):
            pass
    third = pickle.loads(pickle.dumps(locks))
    third.close()
    with pytest.raises(interlock.StoreError, match="closed"):  # they share one connection
        second.acquire()
    third = pickle.loads(pickle.dumps(locks))
    assert try_it(third.lock("a"))
    assert pickle.loads(pickle.dumps(locks.rwlock("book"))).read().name == "book"
    third.close()


def test_locks_of_tasks_can_be_sent_too(url: str) -> None:
    async def main() -> None:
        async with interlock.aconnect(url) as locks:
            there = pickle.loads(pickle.dumps(locks.lock("a")))
            async with there:
                assert await locks.lock("a").acquire(False) is None
            await pickle.loads(pickle.dumps(locks)).close()

    asyncio.run(main())


def test_what_would_not_exclude_over_there_is_refused(url: str) -> None:
    with interlock.connect("memory://pickles") as locks:
        with pytest.raises(InvalidArgument, match="exist only in this process"):
            pickle.dumps(locks.lock("a"))
        made = interlock.Locks(locks.store)
        with pytest.raises(InvalidArgument, match="not made from a URL"):
            pickle.dumps(made)
    with interlock.connect(url).lock("a") as grant, pytest.raises(InvalidArgument, match="belongs to the process"):
        pickle.dumps(grant)
