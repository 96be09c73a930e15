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


def _clock(name: str, system: str, otherwise: str) -> Clock:
    """Return a system clock in seconds; without it, a function of `time`; on Windows that of `_windows_clock`."""
    if not hasattr(time, "clock_gettime"):
        from interlock.runtime import _windows_clock

        of_windows: Clock = getattr(_windows_clock, name)
        return of_windows
    number = getattr(time, system, None)
    if number is not None:
        return partial(time.clock_gettime, number)
    plain: Clock = getattr(time, otherwise)
    return lambda: plain()


now = _clock("now", "CLOCK_MONOTONIC", "monotonic")
"""Seconds; without the time for which the machine was suspended."""

awake_or_not = _clock("awake_or_not", "CLOCK_BOOTTIME", "monotonic")
"""Seconds; with the time for which the machine was suspended, like a remote server's clock."""

time_of_day = _clock("time_of_day", "CLOCK_REALTIME", "time")
"""Seconds since the epoch."""
