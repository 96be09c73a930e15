"""How tests wait: for a condition with a deadline, never for a time that should be enough."""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds that a test waits for what must happen; only a failing test waits so long."""

PAUSE = 0.005
LATER = 0.01  # seconds by which a renewal moves the end of a lease, at least


def eventually(condition: Callable[[], T], within: float = PATIENCE) -> T:
    """Wait until `condition()` is true, and return what it returned.

    Args:
        condition: asked again and again.
        within: seconds; then the test has failed.

    Raises:
        AssertionError: it did not become true in time.
    """
    deadline = time.monotonic() + within
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"did not happen within {within:g} s; the last answer was {answer!r}")
        time.sleep(PAUSE)


def throughout(seconds: float, condition: Callable[[], object]) -> None:
    """See that `condition()` stays true for so many seconds.

    Raises:
        AssertionError: it became false.
    """
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        answer = condition()
        passed = time.monotonic() - started
        assert answer, f"became {answer!r} after {passed:.2f} s of {seconds:g} s"
        time.sleep(PAUSE * 4)


@contextmanager
def collected() -> Iterator[None]:
    """Collect at the end of the body what was made in it only: a whole large process takes longer than a lease."""
    gc.freeze()
    try:
        yield
        gc.collect()
    finally:
        gc.unfreeze()


class Lateness:
    """How late a thread is woken at worst while the body runs: what a busy machine adds to a bound of a test.

    Attributes:
        worst: seconds, so far.
    """

    def __enter__(self) -> "Lateness":
        self.worst = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while True:
            asleep = time.monotonic()
            if self._over.wait(PAUSE):
                return
            self.worst = max(self.worst, time.monotonic() - asleep - PAUSE)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def until_renewed(grant: Any, times: int = 1) -> None:
    """Wait until the lease of a grant has been renewed so many times from now, however long a renewal takes to come.

    Raises:
        AssertionError: the grant was lost or released, or not renewed in time.
    """
    for _ in range(times):
        ends = time.monotonic() + grant.expires_in
        eventually(lambda ends=ends: time.monotonic() + grant.expires_in > ends + LATER or not grant.held)  # type: ignore[misc]
        assert grant.held, "was lost or released while the test waited for its renewal"
