"""The price of waiting: a waiter looks at a long line less often, because a look reads the whole line."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually

SECONDS = 3.0
SHARE = 0.05  # of a processor; with a fixed pause of a second it was 0.2 to 0.65


@pytest.fixture
def small_stacks() -> Iterator[None]:
    """Lets hundreds of threads begin with small stacks."""
    before = threading.stack_size(256 * 1024)
    yield
    threading.stack_size(before)


@pytest.mark.parametrize(("url", "waiters"), [("memory://waiting", 800), ("file://{}/locks", 300)])
@pytest.mark.usefixtures("small_stacks")
def test_hundreds_that_only_wait_use_little_of_a_processor(url: str, waiters: int, tmp_path: Path) -> None:
    with interlock.connect(url.format(tmp_path)) as locks:
        lock, served = locks.lock("book"), []

        def work() -> None:
            with lock:
                served.append(1)

        with lock:
            threads = [threading.Thread(target=work, daemon=True) for _ in range(waiters)]
            for thread in threads:
                thread.start()
            eventually(lambda: sum(each.state == "pending" for each in locks.claims("book")) == waiters)
            time.sleep(1.0)  # the first look
            before = time.process_time()
            time.sleep(SECONDS)
            used = (time.process_time() - before) / SECONDS
        for thread in threads:
            thread.join(60)
    assert len(served) == waiters
    assert used < SHARE
