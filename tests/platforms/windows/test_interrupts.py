"""Ctrl-C: Windows interrupts neither the wait for a lock of Python nor that for a socket."""

import signal
import threading
import time
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually
from tests.platforms.windows.places import STORES, emptied, store_name

SOON = 0.5  # seconds, on a busy machine; a wait is looked at each 0.1 s


@pytest.mark.parametrize("store", STORES, ids=store_name)
def test_an_interrupt_ends_the_wait_for_a_lock(store: str, tmp_path: Path) -> None:
    locks = interlock.connect(emptied(store, tmp_path))
    struck: list[float] = []

    def strike() -> None:
        eventually(lambda: len(locks.claims("book")) == 2)
        time.sleep(0.3)  # the waiter has begun to wait
        struck.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    with locks, locks.lock("book"):
        striking = threading.Thread(target=strike)
        striking.start()
        with pytest.raises(KeyboardInterrupt):
            locks.lock("book").acquire(timeout=60)
        assert time.monotonic() - struck[0] < SOON
        striking.join()
        assert len(locks.claims("book")) == 1
