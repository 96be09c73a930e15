"""A thousand threads of several processes wait for one name on files, and are served in their order."""

import time
from collections.abc import Callable

import pytest

import interlock
from interlock.testing.other_process import Remote, logged
from tests.support.concurrent_callers import until_there_are
from tests.support.stores import ROWS, Row

LIMIT = 60.0  # seconds for all; 1,000 took 0.5 s in 4 processes, and 4 s in 100
CROWD = """
import threading
threading.stack_size(256 * 1024)

def work():
    with locks.lock("book") as grant:
        log_next({log!r}, grant.fence)

threads = [threading.Thread(target=work) for _ in range({number})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.fixture
def row() -> Row:
    """Files."""
    return next(row for row in ROWS if row.name == "file")


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("processes", "threads"),
    [
        (4, 40),
        (20, 4),
        pytest.param(4, 250, marks=pytest.mark.rare),
        pytest.param(100, 10, marks=pytest.mark.rare),
    ],
)
def test_a_crowd_is_served_in_order_and_in_time(
    locks: interlock.Locks, remote: Callable[[], Remote], log: str, processes: int, threads: int
) -> None:
    number = processes * threads
    with locks.lock("book", ttl=600.0):
        others = [remote() for _ in range(processes)]
        for other in others:
            other.start(CROWD.format(log=log, number=threads))
        until_there_are(locks, number + 1)
        began = time.monotonic()
    for other in others:
        other.answer(LIMIT)
    assert time.monotonic() - began < LIMIT
    numbers, fences = logged(log)
    assert numbers == [*range(1, number + 1)]
    assert fences == sorted(fences)
