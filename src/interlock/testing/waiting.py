"""Waiting in tests: for a condition with a deadline, never for a fixed time."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_LIMIT = 60.0
"""Seconds that a test waits for a condition; only a failing test waits so long."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.005, 0.025  # seconds between two looks; a look may be a request to a server
RENEWED = 1.5
"""Seconds of a lease that must not expire during a test, even if the machine stalls for a second."""

SET_BACK = 0.1
"""Seconds by which a machine's clock may be set back during a test, as a virtual machine's is by milliseconds: a
lease that one command of a server has written then expires later than the next command expects."""

USER_HZ = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100  # the unit of /proc/stat; proc(5)
LATER = 0.01  # minimum seconds by which a renewal extends a lease


def eventually(condition: Callable[[], T], within: float = WAIT_LIMIT) -> T:
    """Wait until `condition()` is true, and return what it returned.

    Args:
        condition: called repeatedly.
        within: seconds, not counting stalls of the machine (see `since`).

    Raises:
        AssertionError: the condition did not become true in time.
    """
    began = moment()
    while True:
        if answer := condition():
            return answer
        passed = time.monotonic() - began
        if passed > within and since(began) > within:
            raise AssertionError(f"did not happen within {within:g} s; the last answer was {answer!r}")
        time.sleep(min(max(SHORTEST_PAUSE, passed / 10), LONGEST_PAUSE))


@contextmanager
def lasting(least: float, late: float) -> Iterator[None]:
    """Check that the block lasts `seconds`, and at most `late` longer, without stalls."""
    began = moment()
    yield
    assert time.monotonic() - began >= least
    assert since(began) < least + late


def throughout(seconds: float, condition: Callable[[], object]) -> None:
    """Check that `condition()` stays true for some seconds.

    Raises:
        AssertionError: the condition became false.
    """
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        answer = condition()
        assert answer, f"became {answer!r} after {passed:.2f} s of {seconds:g} s"
        time.sleep(SHORTEST_PAUSE * 4)


@contextmanager
def collected() -> Iterator[None]:
    """At the end of the block collect only objects made in it: a full collection may take longer than a lease."""
    gc.freeze()
    try:
        yield
        gc.collect()
    finally:
        gc.unfreeze()


class Moment(float):
    """A moment of the monotonic clock, with the total stall time of the machine at that moment."""

    stalled: float


def moment() -> Moment:
    """Return the present moment, for `since`."""
    now = Moment(time.monotonic())
    now.stalled = _stalled()
    return now


def since(start: Moment) -> float:
    """Return the seconds since `start`, without those in which the machine was too busy; for a bound in a test.

    The kernel counts for how long processes waited for a processor or a disk, and for how long the hypervisor took a
    processor away (see "PSI - Pressure Stall Information" in its documentation, and proc_stat(5)).  At least a
    quarter of the time counts, so that a hanging test fails on a busy machine, too.
    """
    return _without(time.monotonic() - start, start.stalled, _stalled())


def _without(passed: float, before: float, after: float) -> float:
    """Return the passed seconds, less those in which the machine stalled."""
    return passed if not before else max(passed - max(after - before, 0), passed / 4)


def _stalled() -> float:
    """Return the total stall time of the machine, in seconds; 0 if the kernel does not count it.

    Under wine, Python for Windows reads the same files, those of the system below.
    """
    try:
        waited = sum(int(_read(f"/proc/pressure/{what}").split("total=")[1].split()[0]) for what in ("cpu", "io"))
        stolen = int(_read("/proc/stat").split(None, 9)[8])
        return waited / 1e6 + stolen / USER_HZ
    except (OSError, LookupError, ValueError):
        return 0.0


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


class Stalls:
    """Records when the machine stalled during the block, for bounds between two given moments.

    Example:
        with Stalls() as machine:
            ...
        assert machine.between(deadline, told) < 0.2
    """

    def __enter__(self) -> "Stalls":
        self._seen = [moment()]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._over.wait(SHORTEST_PAUSE * 4):
            self._seen.append(moment())

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._seen.append(moment())

    def between(self, start: float, end: float) -> float:
        """Return the seconds between two moments of the monotonic clock, as `since`; call it after the block."""
        before = max((each for each in self._seen if each <= start), default=self._seen[0])
        after = min((each for each in self._seen if each >= end), default=self._seen[-1])
        return _without(end - start, before.stalled, after.stalled)


def until_renewed(grant: Any, times: int = 1) -> None:
    """Wait until the lease of a grant has been renewed `times` times from now.

    Raises:
        AssertionError: the grant was lost or released, or not renewed in time.
    """
    for _ in range(times):
        ends = time.monotonic() + grant.expires_in
        eventually(lambda ends=ends: time.monotonic() + grant.expires_in > ends + LATER or not grant.held)  # type: ignore[misc]
        assert grant.held, "was lost or released while the test waited for its renewal"
