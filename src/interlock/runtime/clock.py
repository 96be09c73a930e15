"""The library's own clocks, which tests that freeze or shift time (freezegun, time-machine) do not reach.

freezegun replaces every attribute of a module that *is* `time.monotonic` or `time.time`; so none is kept here.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

Clock: TypeAlias = Callable[[], float]
LONGEST_SLEEP = 3600.0  # seconds; a longer sleep is interrupted for a look
RETRY = 0.02  # seconds after an error that should not be


def _clock(name: str, otherwise: str) -> Clock:
    """Return the clock of the system called `name`, in seconds; where there is none, a function of `time`."""
    number = getattr(time, name, None)
    if number is not None and hasattr(time, "clock_gettime"):
        return partial(time.clock_gettime, number)
    plain: Clock = getattr(time, otherwise)
    return lambda: plain()


now = _clock("CLOCK_MONOTONIC", "monotonic")
"""Seconds; it stands still while the machine is suspended."""

awake_or_not = _clock("CLOCK_BOOTTIME", "monotonic")
"""Seconds; it counts the time for which the machine was suspended, as the clock of a server elsewhere does."""

time_of_day = _clock("CLOCK_REALTIME", "time")
"""Seconds since the epoch."""
