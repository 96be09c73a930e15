"""How tests wait: for a condition with a deadline, never for a time that should be enough."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

WAIT_LIMIT = 60.0
"""Seconds that a test waits for what must happen; only a failing test waits so long."""

PAUSE = 0.005
RENEWED = 1.5
"""Seconds of a lease that must not end while a test goes on: the machine may stand still for a second of them."""

SET_BACK = 0.1
"""Seconds by which a machine's clock may be set back during a test: a virtual machine's is corrected by milliseconds,
and what one command of a server has written then ends later than the next one expects."""

LATER = 0.01  # seconds by which a renewal moves the end of a lease, at least


def eventually(condition: Callable[[], T], within: float = WAIT_LIMIT) -> T:
    """Wait until `condition()` is true, and return what it returned.

    Args:
        condition: asked again and again.
        within: seconds, more of them on a busy machine (see `since`); then the test has failed.

    Raises:
        AssertionError: it did not become true in time.
    """
    began = moment()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() - began > within and since(began) > within:
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


class Moment(float):
    """A moment of the monotonic clock that knows for how long the machine had let somebody wait by then."""

    stalled: float


def moment() -> Moment:
    """Return the present moment, for `since`."""
    now = Moment(time.monotonic())
    now.stalled = _stalled()
    return now


def since(start: Moment) -> float:
    """Return the seconds since `start` for a bound that a test sets, without those in which the machine was too busy.

    The kernel counts for how long somebody waited for a processor or a disk, and for how long the machine below
    took a processor away (see "PSI - Pressure Stall Information" in its documentation, and proc_stat(5)).  A quarter
    of the time counts all the same, so that what hangs fails on a busy machine, too.
    """
    return _without(time.monotonic() - start, start.stalled, _stalled())


def _without(passed: float, before: float, after: float) -> float:
    """Return the seconds that passed without those that the machine stalled, if that is known."""
    return passed if not before else max(passed - max(after - before, 0), passed / 4)


def _stalled() -> float:
    """Return for how many seconds the machine has let somebody wait; 0 where the kernel does not count that."""
    try:
        waited = sum(int(_read(f"/proc/pressure/{what}").split("total=")[1].split()[0]) for what in ("cpu", "io"))
        stolen = int(_read("/proc/stat").split(None, 9)[8])
        return waited / 1e6 + stolen / os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, LookupError, ValueError):
        return 0.0


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


class Stalls:
    """When the machine was too busy while the body runs, for bounds between two moments of others.

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
        while not self._over.wait(PAUSE * 4):
            self._seen.append(moment())

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._seen.append(moment())

    def between(self, start: float, end: float) -> float:
        """Return the seconds between two moments of the monotonic clock, as `since`; after the body."""
        before = max((each for each in self._seen if each <= start), default=self._seen[0])
        after = min((each for each in self._seen if each >= end), default=self._seen[-1])
        return _without(end - start, before.stalled, after.stalled)


def until_renewed(grant: Any, times: int = 1) -> None:
    """Wait until the lease of a grant has been renewed so many times from now, however long a renewal takes to come.

    Raises:
        AssertionError: the grant was lost or released, or not renewed in time.
    """
    for _ in range(times):
        ends = time.monotonic() + grant.expires_in
        eventually(lambda ends=ends: time.monotonic() + grant.expires_in > ends + LATER or not grant.held)  # type: ignore[misc]
        assert grant.held, "was lost or released while the test waited for its renewal"
