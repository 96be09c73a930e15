"""The clocks of Windows that all processes share, whatever their Python.

`time.monotonic` counts from another moment in Python 3.13 than in 3.12, and `time.time` of 3.12 advances in ticks of
16 ms.  See QueryUnbiasedInterruptTimePrecise and GetSystemTimePreciseAsFileTime in Microsoft's documentation.
"""

import ctypes
import sys
from collections.abc import Callable

assert sys.platform == "win32"

TICKS = 1e7  # in a second
EPOCH = 11_644_473_600  # seconds from 1601 to 1970
_base = ctypes.WinDLL("kernelbase")


def _clock(*names: str) -> Callable[[], float]:
    """Return a clock in seconds: of the functions with these names the first that this Windows has."""
    read = next(getattr(_base, name) for name in names if hasattr(_base, name))

    def clock() -> float:
        ticks = ctypes.c_ulonglong()
        read(ctypes.byref(ticks))
        return ticks.value / TICKS

    return clock


_from_1601 = _clock("GetSystemTimePreciseAsFileTime")
now = _clock("QueryUnbiasedInterruptTimePrecise", "QueryUnbiasedInterruptTime")


_tick_count = _base.GetTickCount64
_tick_count.restype = ctypes.c_ulonglong


def _milliseconds() -> float:
    return float(_tick_count()) / 1000


awake_or_not = _clock("QueryInterruptTimePrecise") if hasattr(_base, "QueryInterruptTimePrecise") else _milliseconds


def time_of_day() -> float:
    """Return the seconds since 1970."""
    return _from_1601() - EPOCH
