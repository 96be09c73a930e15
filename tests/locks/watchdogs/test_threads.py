"""The watchdog of threads: when it looks again, whom it wakes, and what an error leaves undone."""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.client.base import BaseGrant
from interlock.locks.leases import LONGEST_SLEEP
from interlock.locks.sync import watchdog as of_threads
from interlock.locks.sync.watchdog import Watchdog
from interlock.testing.waiting import eventually
from tests.support.spied_store import Clock, away
from tests.support.spied_watchdog import NOW, Queue, gives_back, grant


class Renewers:
    """Takes the place of the threads that renew."""

    behind = False

    def __init__(self) -> None:
        self.due: list[list[str]] = []
        self.woken = 0

    def hand_over(self, due: Sequence[BaseGrant]) -> None:
        """As `Renewers.hand_over`."""
        self.due.append([each.id for each in due])

    def wake_all(self) -> None:
        """As `Renewers.wake_all`."""
        self.woken += 1


class Wakeup:
    """Takes the place of the lock that wakes the thread which keeps time.

    Attributes:
        rings: what the next waits find.
        waits: how long each wait was to be.
    """

    def __init__(self, *rings: bool) -> None:
        self.rings = list(rings)
        self.waits: list[float] = []
        self.free = False

    def acquire(self, timeout: float) -> bool:
        """As of every lock."""
        self.waits.append(timeout)
        return self.rings.pop(0)

    def locked(self) -> bool:
        """As of every lock."""
        return not self.free


class Started:
    """What would run in threads of their own."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.works: list[Callable[[], None]] = []
        self.alive = True

    def __call__(self, work: Callable[[], None], name: str) -> Any:
        self.names.append(name)
        self.works.append(work)
        return SimpleNamespace(is_alive=lambda: self.alive)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The threads that the watchdog starts."""
    started = Started()
    monkeypatch.setattr(of_threads, "started", started)
    return started


@pytest.fixture
def watchdog(queue: Queue, clock: Clock, started: Started, given: list[str]) -> Any:
    """A watchdog of threads without threads."""
    nothing: Callable[..., None] = lambda *_: None  # noqa: E731
    watchdog: Any = Watchdog(queue, nothing, nothing, gives_back(given), None)  # type: ignore[arg-type]
    watchdog._renewers = Renewers()
    return watchdog


def rung(watchdog: Any) -> bool:
    """Tell whether the thread that keeps time was rung, and take it back."""
    return bool(watchdog._rung.acquire(blocking=False))


def test_a_grant_wakes_the_thread_only_if_it_is_due_before_the_next_look(watchdog: Any, started: Started) -> None:
    assert not rung(watchdog)
    watchdog.add(first := grant("a", 40.0))
    assert rung(watchdog)
    assert started.names == ["interlock-watchdog"]
    assert watchdog._alarm == first._due
    assert watchdog._interval == pytest.approx(20.0)
    watchdog._wakes_at = first._due
    watchdog.add(later := grant("b", 50.0))
    watchdog.add(same := grant("c", 40.0))
    assert not rung(watchdog)
    watchdog.add(over := grant("d", -100.0))
    assert rung(watchdog)
    assert watchdog._interval == 0.02
    assert len(started.names) == 1, "the thread lives"
    started.alive = False
    watchdog.add(last := grant("e", -100.0))
    assert len(started.names) == 2
    assert watchdog.grants == [first, later, same, over, last]


def test_who_acquired_a_claim_is_known_while_it_is_under_watch(watchdog: Any) -> None:
    watchdog.add(held := grant("a"))
    assert (watchdog.owner_of("a"), watchdog.owner_of("b")) == ("A", None)
    assert (watchdog.remove(held), watchdog.remove(held)) == (True, False)
    assert watchdog.owner_of("a") is None


def test_a_claim_that_stays_wakes_the_thread_only_if_it_leaves_before_the_next_look(watchdog: Any) -> None:
    staying, later = grant("a"), grant("b")
    staying._free_at = later._free_at = NOW + 5.0
    watchdog._wakes_at = NOW + 5.0
    watchdog.release_later(later)
    watchdog._wakes_at = NOW + 4.9
    watchdog.release_later(later)
    assert not rung(watchdog)
    watchdog._wakes_at = NOW + 5.1
    watchdog.release_later(staying)
    assert rung(watchdog)


def test_a_doubt_about_what_is_held_is_looked_at_now(watchdog: Any, queue: Queue) -> None:
    watchdog.add(grant("a"))
    rung(watchdog)
    assert watchdog.doubt("b") is False
    assert not rung(watchdog)
    assert watchdog.doubt("a") is True
    assert rung(watchdog)
    assert watchdog._alarm == 0.0
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == [["a"]]


def test_a_watchdog_that_is_stopped_keeps_no_thread(watchdog: Any) -> None:
    assert watchdog._is_kept() is False
    watchdog._thread = threading.current_thread()
    assert watchdog._is_kept() is True
    watchdog.stop()
    watchdog.stop()
    assert rung(watchdog)
    assert watchdog._is_kept() is False


def test_one_look_hands_over_what_is_due_and_takes_out_what_has_stayed(
    watchdog: Any, clock: Clock, started: Started, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == []
    watchdog._renewers.behind = True
    watchdog._tell_and_renew()
    assert watchdog._renewers.due == [[]], "more threads may be needed by now"
    watchdog._renewers.behind = False
    for id in "ab":
        staying = grant(id)
        staying._free_at = NOW + 5.0
        watchdog.release_later(staying)
    watchdog.add(due := grant("c"))
    watchdog._ring()
    clock.now = due._due
    watchdog._wakes_at = 0.0
    watchdog._tell_and_renew()
    assert not rung(watchdog), "whoever rang was heard"
    assert watchdog._wakes_at == math.inf, "who comes now rings"
    assert watchdog._renewers.due == [[], ["c"]]
    assert started.names == ["interlock-watchdog", "interlock-at-least"]
    started.works[1]()
    assert queue.left == ["a", "b"], "also after a failure"
    assert "could not release 'a' after its `at_least`" in caplog.text


@pytest.mark.parametrize(
    ("due", "waits"), [(10.0, 10.0), (-100.0, 0.0), (9000.0, LONGEST_SLEEP)], ids=["in time", "late", "far"]
)
@pytest.mark.parametrize("rings", [True, False])
def test_the_thread_waits_until_the_next_look(watchdog: Any, due: float, waits: float, rings: bool) -> None:
    watchdog.add(grant("a", due + 20.0))
    watchdog._rung = Wakeup(rings)
    assert watchdog._rest() is True
    assert watchdog._rung.waits == [pytest.approx(waits)]


def test_with_nothing_to_watch_it_waits_ten_seconds_and_ends(watchdog: Any, queue: Queue) -> None:
    rested: list[int] = []
    queue.rested = lambda: rested.append(1)
    watchdog._rests = queue.rest
    watchdog._thread = "it"
    watchdog._rung = wakeup = Wakeup(True, False, False, False)
    assert watchdog._rest() is True
    assert (wakeup.waits, rested) == ([10.0], [])
    wakeup.free = True
    assert watchdog._rest() is True, "it was rung while it rested"
    wakeup.free, watchdog._stopped = False, True
    assert watchdog._rest() is True
    assert watchdog._thread == "it"
    watchdog._stopped = False
    assert watchdog._rest() is False
    assert (watchdog._thread, len(rested)) == (None, 3)


def test_while_grants_come_and_go_it_looks_at_intervals(watchdog: Any) -> None:
    assert watchdog._next_look(NOW) == math.inf
    watchdog.add(held := grant("a"))
    assert watchdog._next_look(NOW) == held._due == watchdog._alarm
    watchdog._alarm = NOW + 3.0
    assert watchdog._next_look(NOW) == NOW + 3.0
    watchdog.remove(held)
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == math.inf, "nobody came since it looked last"
    watchdog.add(brief := grant("a"))
    watchdog.remove(brief)
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == NOW + watchdog._interval == NOW + 10.0
    assert watchdog._next_look(NOW) == math.inf
    watchdog._renewers.behind = True
    assert watchdog._next_look(NOW) == NOW + 0.25
    watchdog._alarm = NOW + 0.1
    assert watchdog._next_look(NOW) == NOW + 0.1
    watchdog._renewers.behind = False
    watchdog._active = True
    watchdog.add(later := grant("b", 60.0))
    watchdog._alarm = NOW
    assert watchdog._next_look(NOW) == later._due, "what is known counts, not the interval"
    watchdog._alarm = NOW - 1.0
    assert watchdog._next_look(NOW) == later._due


@pytest.mark.parametrize("why", ["ended", "stopped", "error"])
def test_the_thread_that_keeps_time_is_started_again_after_an_error_only(
    watchdog: Any, started: Started, clock: Clock, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[int] = []

    def rest() -> bool:
        if why == "stopped":
            watchdog._stopped = len(looks) == 2
        elif why == "error" and len(looks) == 2:
            raise SystemExit
        return why != "ended" or len(looks) < 2

    watchdog._tell_and_renew = lambda: looks.append(1)
    watchdog._rest = rest
    watchdog._thread = before = SimpleNamespace(is_alive=lambda: True)
    watchdog._wakes_at = 0.0
    watchdog._keep_time()
    assert len(looks) == 2
    assert (watchdog._wakes_at, watchdog._renewers.woken) == (math.inf, 1)
    assert started.names == (["interlock-watchdog"] if why == "error" else [])
    assert (watchdog._thread is before) is (why != "error")
    assert clock.pauses == ([0.02] if why == "error" else [])
    assert rung(watchdog) is (why == "error")
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * (why == "error")


def test_a_watchdog_that_is_stopped_in_an_error_is_not_started_again(watchdog: Any, started: Started) -> None:
    def fails() -> None:
        watchdog._stopped = True
        raise OSError

    watchdog._tell_and_renew = fails
    watchdog._keep_time()
    assert started.names == []


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("error", [away(), SystemExit()])
def test_what_could_not_be_renewed_is_renewed_soon(
    watchdog: Any, queue: Queue, stopped: bool, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    watchdog.add(held := grant("b"))
    queue.answers, watchdog._stopped = error, stopped
    watchdog._renew_due([held])
    assert held._due == pytest.approx(NOW + (10.0 if stopped else 1.5))
    assert [each for each in caplog.messages if "unexpected" in each] == (
        [] if isinstance(error, StoreError) else ["unexpected error while renewing"]
    )


def test_a_grant_whose_block_was_left_is_given_back_and_who_ended_is_not_asked_for(
    watchdog: Any, queue: Queue, given: list[str], caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    grants = {id: grant(id) for id in "abcd"}
    for each in grants.values():
        watchdog.add(each)
    grants["a"]._block = grants["b"]._block = lambda: None
    watchdog.remove(grants["c"])
    clock.now = NOW + 12.0
    watchdog._renew(list(grants.values()))
    assert given == ["a", "b"], "also after a failure"
    assert "could not release 'a', whose `with` block was left" in caplog.text
    assert queue.renewed == [["d"]]
    assert grants["d"]._deadline == NOW + 42.0
    watchdog._renew([grants["c"]])
    assert len(queue.renewed) == 1


def test_a_lease_is_renewed_and_lost_by_real_threads(queue: Queue) -> None:
    lost: list[str] = []
    watchdog: Watchdog[BaseGrant] = Watchdog(
        queue,  # type: ignore[arg-type]
        lambda each: lost.append(each.id),
        lambda *_: None,
        lambda each: None,
        None,
    )
    try:
        watchdog.add(held := grant("b"))
        held._due = 0.0
        watchdog.doubt("b")
        eventually(lambda: queue.renewed)
        queue.answers = False
        watchdog.doubt("b")
        eventually(lambda: lost)
    finally:
        watchdog.stop()
    assert watchdog.grants == []
