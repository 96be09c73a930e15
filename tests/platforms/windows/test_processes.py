"""Several processes: the order of the line, wake-ups, and the death of a process, on stores that they can share."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import interlock
from interlock.testing.other_process import Remote, logged
from interlock.testing.waiting import eventually, moment

Start = Callable[[], Remote]
WAKES = 2.0  # seconds, on a busy machine; a waiter that was not notified looks later, except on SQLite
LEASE = 1.0
STARTS = 30.0  # seconds until a process has connected
ACQUIRE = "grant = locks.lock('book').acquire(); result = grant.fence"


def until_waiting(locks: interlock.Locks, waiters: int) -> None:
    """Wait until so many claims wait for the lock."""
    eventually(lambda: sum(claim.state == "pending" for claim in locks.claims("book")) == waiters, STARTS)


@pytest.mark.skipif(not Path("Z:/proc/pressure/cpu").exists(), reason="the system below wine counts no stalls")
def test_the_stalls_of_the_machine_are_known_to_bounds_of_tests() -> None:
    assert moment().stalled > 0


def test_processes_count_without_losing_an_update(shared: str, remote: Start, tmp_path: Path) -> None:
    log = tmp_path / "log"
    counting = [remote() for _ in range(3)]
    for each in counting:
        each.start(f"count(url, 'book', {str(log)!r}, 20, 0.001)")
    for each in counting:
        each.answer()
    numbers, fences = logged(str(log))
    assert numbers == list(range(1, 61))
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("waiters", [3])
def test_a_release_wakes_the_next_process_in_the_line(shared: str, remote: Start, waiters: int) -> None:
    with interlock.connect(shared) as locks:
        held = locks.lock("book").acquire()
        waiting = [remote() for _ in range(waiters)]
        for number, each in enumerate(waiting):
            each.start(ACQUIRE)
            until_waiting(locks, number + 1)
        fences = [held.fence]
        held.release()
        for each in waiting:
            began = time.monotonic()
            fences.append(each.answer())
            assert time.monotonic() - began < WAKES
            each.do("grant.release()")
        assert fences == sorted(set(fences))


def test_a_killed_holder_frees_the_lock(shared: str, remote: Start) -> None:
    ttl = 30.0 if shared.startswith("file:") else LEASE
    holder = remote()
    first = holder.do(f"grant = locks.lock('book', ttl={ttl}).acquire(); result = grant.fence")
    waiter = remote()
    with interlock.connect(shared) as locks:
        waiter.start(ACQUIRE)
        until_waiting(locks, 1)
        holder.kill()
        assert waiter.answer(WAKES if ttl > LEASE else LEASE + WAKES) > first


def test_a_killed_waiter_does_not_block_the_line(shared: str, remote: Start) -> None:
    with interlock.connect(shared) as locks:
        held = locks.lock("book").acquire()
        first, second = remote(), remote()
        first.start("grant = locks.lock('book', ttl=1).acquire()")
        until_waiting(locks, 1)
        second.start(ACQUIRE)
        until_waiting(locks, 2)
        first.kill()
        held.release()
        assert second.answer(LEASE + WAKES) > held.fence


def test_a_process_that_ends_releases_its_locks(shared: str, remote: Start) -> None:
    holder = remote()
    fence = holder.do(ACQUIRE)
    with interlock.connect(shared) as locks:
        assert holder.end() == 0
        assert locks.lock("book").acquire(timeout=WAKES).fence > fence
