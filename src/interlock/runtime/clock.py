"""The library's own clocks, which freezegun and time-machine do not change.

freezegun replaces every attribute of a module that *is* `time.monotonic` or `time.time`; so none is kept here.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
LONGEST_SLEEP = 3600.0  # seconds; a longer sleep is interrupted for a check
ERROR_PAUSE = 0.02  # seconds after an unexpected error


def _clock(name: str, otherwise: str) -> Clock:
    """Return a system clock in seconds; without it, a function of `time`."""
    number = getattr(time, name, None)
    if number is not None and hasattr(time, "clock_gettime"):
        return partial(time.clock_gettime, number)
    plain: Clock = getattr(time, otherwise)
    return lambda: plain()


now = _clock("CLOCK_MONOTONIC", "monotonic")
"""Seconds; without the time for which the machine was suspended."""

awake_or_not = _clock("CLOCK_BOOTTIME", "monotonic")
"""Seconds; with the time for which the machine was suspended, like a remote server's clock."""

time_of_day = _clock("CLOCK_REALTIME", "time")
"""Seconds since the epoch."""
