"""How tests wait: for a condition with a deadline, never for a time that should be enough."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 20.0
"""Seconds that a test waits for what must happen; only a failing test waits so long."""

PAUSE = 0.005


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
