"""The end of a connection of threads: who is waited for, and how long; what is released; what a failure leaves."""

import logging
import math
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.client.base import AcquireOptions
from interlock.locks.sync import closing
from interlock.client._sync.grants import Grant
from interlock.locks.sync.session import Session
from interlock.runtime.sync import run
from interlock.testing.waiting import eventually
from tests.support.spied_store import Clock, SpiedStore, away, claim, enters

ME = threading.main_thread()


@pytest.fixture
def session() -> Iterator[Session[Grant]]:
    """A connection whose watchdog ends with the test."""
    session = Session("Locks", SpiedStore(), "", 30.0, Grant)
    yield session
    session.watchdog.stop()


@pytest.fixture
def store(session: Session[Grant]) -> SpiedStore:
    """The store of the connection."""
    found: Any = session.store
    return found


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which closing waits."""
    clock = Clock()
    monkeypatch.setattr(closing, "time", clock)
    return clock


@pytest.fixture
def working() -> Iterator[threading.Thread]:
    """A thread that is at work until the test ends."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, args=(30,), name="worker")
    thread.start()
    yield thread
    over.set()
    thread.join()


def ended() -> threading.Thread:
    """Return a thread that is no more."""
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return thread


def hold(session: Session[Grant], name: str, owner: Any = ME) -> Grant:
    """Acquire a lock for a thread."""
    grant = session.acquire(LockSpec(f"\0{name}", ttl=30.0), AcquireOptions(), 0, "ann", owner)
    assert grant is not None
    return grant


# -- who waits gives up -------------------------------------------------------------------------------------


def test_who_can_not_give_up_is_waited_for_two_seconds_and_then_taken_out_of_the_line(
    session: Session[Grant], store: SpiedStore, clock: Clock, working: threading.Thread
) -> None:
    calls = [enters(session, "first", working), enters(session, "second", ended())]
    store.failing["first"] = away()
    closing.withdraw(session, ME)
    assert [call.closed for call in calls] == [True, True]
    assert clock.pauses[:7] == pytest.approx([0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.01])
    assert set(clock.pauses[6:]) == {0.01}
    assert sum(clock.pauses) == pytest.approx(2.0, abs=0.011)
    assert store.left == ["first", "second"], "also after a failure"
    assert session.entering == {}


@pytest.mark.parametrize("where", ["entering", "leaving"])
@pytest.mark.parametrize("last", [False, True])
def test_one_who_gives_up_in_time_is_waited_for_until_then(
    session: Session[Grant], store: SpiedStore, clock: Clock, working: threading.Thread, where: str, last: bool
) -> None:
    order = [ended(), working, ended()][: 2 if last else 3]
    for number, thread in enumerate(order):
        if where == "entering":
            enters(session, str(number), thread)
        else:
            session.leaving[str(number)] = thread, claim(str(number))
    place: dict[str, Any] = getattr(session, where)
    clock.meanwhile = lambda: place.pop("1") if len(clock.pauses) == 3 else None
    closing.withdraw(session, ME)
    assert len(clock.pauses) == 3
    assert "1" not in store.left


def test_the_store_is_not_closed_under_who_releases_meanwhile(
    session: Session[Grant], clock: Clock, working: threading.Thread
) -> None:
    session.leaving = {id: (owner, claim(id)) for id, owner in (("a", ended()), ("b", working), ("c", ME))}
    clock.meanwhile = lambda: session.leaving.pop("b") if len(clock.pauses) == 3 else None
    closing._until_left(session, ME)
    assert len(clock.pauses) == 3


def test_nobody_waits_for_who_closes_or_for_who_is_no_more(
    session: Session[Grant], store: SpiedStore, clock: Clock, working: threading.Thread
) -> None:
    for number, owner in enumerate((working, ended(), None)):
        enters(session, str(number), owner)
    session.leaving = {"a": (working, claim("a")), "b": (ended(), claim("b"))}
    closing.withdraw(session, working)
    assert clock.pauses == []
    assert store.left == ["0", "1", "2"]


def test_who_enters_while_another_leaves_is_waited_for(
    session: Session[Grant], clock: Clock, working: threading.Thread
) -> None:
    call = enters(session, "a", working)
    session.leaving = {"b": (ended(), claim("b"))}
    clock.meanwhile = lambda: session.entering.pop("a", None)
    closing.withdraw(session, ME)
    assert len(clock.pauses) == 1
    assert call.closed


@pytest.mark.parametrize(("interrupted", "kept"), [(False, []), (True, ["mine"])])
def test_an_interrupted_call_of_who_closes_goes_on_and_sees_it_by_itself(
    session: Session[Grant], store: SpiedStore, clock: Clock, interrupted: bool, kept: list[str]
) -> None:
    enters(session, "mine", ME)
    enters(session, "its", ended())
    closing.withdraw(session, ME, interrupted)
    assert list(session.entering) == kept
    assert store.left == ["mine", "its"]


def test_who_closes_has_interrupted_nothing_unless_it_says_so(session: Session[Grant], clock: Clock) -> None:
    enters(session, "mine", ME)
    closing.withdraw(session, ME)
    assert session.entering == {}


# -- close() ------------------------------------------------------------------------------------------------


def test_closing_releases_the_last_one_first_whatever_fails_and_tells_the_first_failure(
    session: Session[Grant], store: SpiedStore
) -> None:
    first, second, third = (hold(session, name) for name in ("a", "b", "c"))
    store.failing = {third.id: away(), second.id: StoreError("another")}
    with pytest.raises(StoreError, match="the store is away"):
        closing.close(session)
    assert store.left == [third.id, second.id, first.id]
    assert [grant._state for grant in (first, second, third)] == ["released", "held", "held"]
    assert {entry.claim.id for entry in session.watchdog.entries} == {second.id, third.id}
    assert store.closed_by == [ME]
    assert session.watchdog._stopped


def test_closing_takes_what_was_dropped_out_of_its_line(session: Session[Grant], store: SpiedStore) -> None:
    grant = hold(session, "a")
    id = grant.id
    grant._leaving = True  # a release that failed: who drops it then is not warned
    session.watchdog.add(grant)
    del grant
    (entry,) = session.watchdog.entries
    assert entry.grant is None
    closing.close(session)
    assert store.left == [id]
    assert session.watchdog.entries == []
    assert list(run(store.look("\0a"))) == []


def test_an_interrupt_while_others_give_up_still_releases_and_closes(
    session: Session[Grant], store: SpiedStore, clock: Clock, working: threading.Thread
) -> None:
    grant = hold(session, "a")
    enters(session, "b", working)

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        closing.close(session)
    assert (grant.held, store.closed_by) == (False, [ME])


# -- close() in the middle of a call of ours ----------------------------------------------------------------


def close_within(session: Session[Grant], store: SpiedStore, where: str) -> None:
    """Close as a signal handler does that interrupts a call of this library."""

    def close(*_: object) -> None:
        session.closed, session.leave_now = True, None
        closing.close(session)

    if where == "run":
        store.meanwhile = lambda claim: close() if claim.id == "x" else None
        run(store.leave(Claim("x", LockSpec("\0x"))))
    elif where == "release":
        session.leave_now = close  # type: ignore[assignment]
        hold(session, "x").release()
    else:
        session.enter_now = close  # type: ignore[assignment]
        with pytest.raises(StoreError, match="closed"):
            hold(session, "x")


@pytest.mark.parametrize("where", ["run", "release", "acquire"])
def test_a_signal_handler_closes_in_another_thread(session: Session[Grant], store: SpiedStore, where: str) -> None:
    grant = hold(session, "a")
    close_within(session, store, where)
    assert not grant.held
    eventually(lambda: store.closed_by)
    assert [thread.name for thread in store.closed_by] == ["interlock-close"]


def test_a_handler_is_told_what_could_not_be_released(session: Session[Grant], store: SpiedStore) -> None:
    grant = hold(session, "a")
    store.failing[grant.id] = away()
    with pytest.raises(StoreError, match="the store is away"):
        close_within(session, store, "run")
    eventually(lambda: store.closed_by)


@pytest.mark.parametrize("ends", [0.05, math.inf])
def test_the_store_stays_open_until_the_interrupted_call_has_ended_or_for_ten_seconds(
    session: Session[Grant], store: SpiedStore, clock: Clock, ends: float
) -> None:
    enters(session, "mine", ME)
    clock.meanwhile = lambda: session.entering.clear() if clock.now >= 100 + ends else None
    closing._close_beside(session, ME)
    eventually(lambda: store.closed_by)
    assert set(clock.pauses) == {0.01}
    assert sum(clock.pauses) == pytest.approx(min(ends, 10.0), abs=0.011)


def test_a_handler_waits_two_seconds_at_most(session: Session[Grant], monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    class Event(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waited.append(timeout or 0.0)
            return True

    monkeypatch.setattr(closing, "threading", SimpleNamespace(Event=Event, Thread=threading.Thread))
    closing._close_beside(session, ME)
    assert waited == [2.0]


def test_where_no_thread_can_be_started_any_more_the_exit_closes(
    session: Session[Grant], store: SpiedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread at interpreter shutdown")

    grant = hold(session, "a")
    monkeypatch.setattr(closing, "threading", SimpleNamespace(Event=threading.Event, Thread=Refused))
    session.closing.acquire()
    closing._close_beside(session, ME)
    assert session.closing.acquire(blocking=False), "whoever comes next closes"
    assert (grant.held, store.closed_by) == (True, [])


# -- the exit of the interpreter ----------------------------------------------------------------------------


def test_the_exit_closes_when_nothing_is_held(session: Session[Grant], store: SpiedStore) -> None:
    closing.at_exit(session)
    assert store.closed_by == [ME]
    assert session.watchdog._stopped


@pytest.mark.parametrize("owner", [lambda: ME, ended, lambda: None, threading.Thread])
def test_the_exit_releases_what_nobody_works_under(
    session: Session[Grant], store: SpiedStore, owner: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    grants = [hold(session, name, owner()) for name in "ab"]
    closing.at_exit(session)
    assert store.left == [grants[1].id, grants[0].id]
    assert store.closed_by == [ME]
    assert caplog.messages == []


def test_a_lock_of_a_thread_at_work_stays_and_the_others_are_released(
    session: Session[Grant], store: SpiedStore, working: threading.Thread, caplog: pytest.LogCaptureFixture
) -> None:
    its, left, mine = hold(session, "its", working), hold(session, "left", working), hold(session, "mine")
    left._block = lambda: None  # its `with` was left without a release
    closing.at_exit(session)
    assert store.left == [mine.id, left.id]
    assert its.held
    assert (store.closed_by, session.watchdog._stopped) == ([], False)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "1 lock(s) of daemon threads that still work at exit (ann) stay" in caplog.messages[0]


@pytest.mark.parametrize("foreign", ["ended without a word", "with a frame"])
def test_a_thread_that_says_it_lives_works_only_if_it_has_a_frame(
    session: Session[Grant], store: SpiedStore, working: threading.Thread, foreign: str
) -> None:
    class Foreign(threading.Thread):
        ident = -1 if foreign == "ended without a word" else working.ident

        def is_alive(self) -> bool:
            return True

    assert -1 not in sys._current_frames()
    grant = hold(session, "a", Foreign())
    closing.at_exit(session)
    assert grant.held is (foreign == "with a frame")


def test_where_claims_end_with_the_process_the_exit_leaves_them_to_that(
    session: Session[Grant],
    store: SpiedStore,
    working: threading.Thread,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store, "frees_at_death", True, raising=False)
    mine, its = hold(session, "mine"), hold(session, "its", working)
    closing.at_exit(session)
    assert (mine.held, its.held, store.left, store.closed_by, caplog.messages) == (True, True, [], [], [])


def test_the_exit_gives_up_at_the_first_release_that_fails(
    session: Session[Grant], store: SpiedStore, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third = (hold(session, name) for name in "abc")
    store.failing[second.id] = away()
    closing.at_exit(session)
    assert store.left == [third.id, second.id]
    assert [entry.grant for entry in session.watchdog.entries] == [first, second]
    assert store.closed_by == []
    assert caplog.messages == ["could not release at exit, the leases will end: the store is away"]


def test_the_exit_keeps_the_store_open_for_who_begins_to_acquire_meanwhile(
    session: Session[Grant], store: SpiedStore, clock: Clock, working: threading.Thread
) -> None:
    enters(session, "a", working)
    store.meanwhile = lambda claim: enters(session, "b", working)
    closing.at_exit(session)
    assert list(session.entering) == ["b"]
    assert store.closed_by == []


def test_threads_that_gave_up_have_a_tenth_of_a_second_together_to_end(
    session: Session[Grant], clock: Clock, working: threading.Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Unknown(threading.Thread):
        def is_alive(self) -> bool:
            return True

    closing._see_them_end({ended(), Unknown(), None})
    assert clock.pauses == []
    closing._see_them_end({working, ended()})
    assert set(clock.pauses) == {0.0002}
    assert sum(clock.pauses) == pytest.approx(0.1, abs=0.0003)
    monkeypatch.setattr(closing, "_see_them_end", seen := [set()].append)
    enters(session, "a", working)
    closing.at_exit(session)
    assert seen.__self__ == [set(), {working}]  # type: ignore[attr-defined]


def test_the_exit_ends_every_connection_that_nobody_closes_whatever_happens_to_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [SpiedStore(), SpiedStore(), SpiedStore()]
    sessions = [Session("Locks", store, "", 30.0, Grant) for store in stores]

    def fails() -> None:
        raise OSError("broken")

    stores[0].close = fails  # type: ignore[method-assign]
    sessions[1].closing.acquire()  # somebody closes it
    monkeypatch.setattr(closing, "open_sessions", sessions)
    closing._at_exit()
    assert [session.closed for session in sessions] == [True, False, True]
    assert [len(store.closed_by) for store in stores] == [0, 0, 1]
    assert caplog.messages == ["could not close at exit: broken"]
