"""An acquire in the session of a connection, of either colour."""

import asyncio
import threading
from typing import Any

import pytest

from interlock.core.acquire import AcquireCall, Held
from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import GONE, EnterResult
from tests.support.spied_session import NOW, SPEC, WAITS, Colour
from tests.support.spied_store import away


@pytest.mark.parametrize(
    ("seconds", "waits", "deadline"), [(0, False, NOW + 1.0), (5.0, True, NOW + 5.0), (None, True, None)]
)
def test_who_waits_does_so_until_its_deadline_and_one_try_has_a_second(
    colour: Colour, seconds: float | None, waits: bool, deadline: float | None
) -> None:
    colour.result = WAITS
    assert colour.acquire(seconds) is None
    assert colour.entered == [(None, waits, False)]
    (call,) = colour.calls
    assert (call.started, call.deadline, call.wait, call.first) == (NOW, deadline, waits, WAITS)
    assert call.owner is (colour.loop if colour.tasks else threading.main_thread())
    assert call.on_queued is None, "nobody listens"
    assert (call.claim.who, call.claim.spec) == ("ann", SPEC)
    assert colour.session.entering == {}


def test_what_was_free_is_held_for_its_ttl_from_when_it_was_asked_for(colour: Colour) -> None:
    lost: list[Any] = []
    grant = colour.acquire(renew=False, on_lost=lost.append)
    assert (grant.fence, grant._deadline, grant._renews, grant._session) == (7, NOW + 30.0, False, colour.session)
    assert grant._on_lost == lost.append
    assert grant._owner is (None if colour.tasks else threading.main_thread())
    assert colour.calls == []
    assert colour.watched == [grant]
    assert colour.session.entering == {}
    assert grant._acquired_at is None, "nobody listens"
    if colour.tasks:
        assert (grant._body, grant._struck, colour.session.ended) == (None, False, False)


@pytest.mark.parametrize(("late", "waits"), [(29.9, False), (30.0, True), (30.1, True)])
def test_an_answer_after_the_lease_is_no_grant(colour: Colour, late: float, waits: bool) -> None:
    enters = colour.session.enter_now

    def enter_now(*asked: Any) -> EnterResult:
        answer: EnterResult = enters(*asked)
        colour.now += late
        return answer

    colour.session.enter_now = enter_now
    grant = colour.acquire()
    assert (len(colour.calls), grant is None) == ((1, True) if waits else (0, False))


@pytest.mark.parametrize("state", ["pending", "waits"])
def test_only_who_is_told_that_it_holds_the_lock_does(colour: Colour, state: Any) -> None:
    colour.result = EnterResult(state, 7)
    assert colour.acquire() is None
    assert len(colour.calls) == 1


def test_who_had_to_wait_holds_what_the_wait_brought_and_all_is_told(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()
    colour.meanwhile = lambda call: call.on_queued(call)
    colour.answer = lambda call: Held(call.claim, 9, NOW + 12.0)
    grant = colour.acquire()
    assert (grant.fence, grant._deadline) == (9, NOW + 12.0)
    assert colour.told == ["queued", "acquired"]


def test_who_lined_up_again_and_gave_up_tells_it_of_each_claim(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()

    def goes_on(call: AcquireCall) -> None:
        assert call.on_queued is not None
        call.on_queued(call)
        call.claim = call.claim._replace(id="another")

    colour.meanwhile = goes_on
    assert colour.acquire(1.0) is None
    assert colour.told == ["queued", "withdrawn", "timed out"]
    assert colour.session.entering == {}


def test_who_did_not_wait_has_left_no_line(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()
    colour.session.left_line = None
    assert colour.acquire(1.0) is None
    assert colour.told == ["timed out"]


@pytest.mark.parametrize(("look_at", "looks"), [(NOW - 0.1, 1), (NOW, 0), (NOW + 0.1, 0)])
def test_the_log_is_looked_at_when_its_time_has_come(colour: Colour, look_at: float, looks: int) -> None:
    seen: list[float] = []
    colour.session.look_at_log = look_at
    colour.session.listen_for_log = seen.append
    colour.acquire()
    assert seen == [NOW] * looks


def test_a_closed_connection_is_not_asked(colour: Colour) -> None:
    colour.session.closed = True
    with pytest.raises(StoreError, match="this connection was closed"):
        colour.acquire()
    assert (colour.entered, colour.session.entering, colour.store.left) == ([], {}, [])


def test_what_is_obtained_while_the_connection_is_closed_is_given_back(colour: Colour) -> None:
    colour.result = WAITS
    colour.listen()

    def granted(call: AcquireCall) -> Held:
        call.entered = colour.session.closed = True
        return Held(call.claim, 9, NOW + 12.0)

    colour.answer = granted
    with pytest.raises(StoreError, match="was closed while 'door' was acquired"):
        colour.acquire()
    assert (colour.watched, colour.session.entering, colour.told) == ([], {}, [])
    assert colour.store.left == [colour.calls[0].claim.id]


def test_what_whoever_closed_has_taken_out_of_the_line_is_not_held(threads: Colour) -> None:
    threads.listen()
    kept: list[Any] = []
    add = threads.session.watchdog.add

    def closes(grant: Any) -> None:
        add(grant)
        kept.append(grant)
        threads.session.entering.clear()

    threads.session.watchdog.add = closes
    with pytest.raises(StoreError, match="was closed while 'door' was acquired"):
        threads.acquire()
    assert (threads.watched, threads.store.left, threads.told) == ([], [kept[0].id], ["acquired", "released"])
    assert not kept[0].held


@pytest.mark.parametrize("error", [away(), KeyboardInterrupt(), asyncio.CancelledError()])
@pytest.mark.parametrize("entered", [False, True])
def test_a_wait_that_is_broken_off_leaves_the_line_it_is_in(
    colour: Colour, error: BaseException, entered: bool
) -> None:
    if colour.tasks and isinstance(error, KeyboardInterrupt):
        error = SystemExit()  # a loop lets both through at once
    colour.result = GONE if not entered else WAITS
    colour.listen()

    def broken(call: AcquireCall) -> None:
        assert call.on_queued is not None
        call.on_queued(call)
        call.claim = call.claim._replace(id="the next")
        colour.session.entering["the next"] = call

    colour.meanwhile = broken
    colour.answer = error
    with pytest.raises(type(error)):
        colour.acquire()
    assert colour.store.left == (["the next"] if colour.calls[0].entered else [])
    assert colour.told == ["queued", "withdrawn"]
    assert list(colour.session.entering) == ["the next"], "its own id is gone"


def test_a_first_step_that_is_broken_off_may_have_entered(colour: Colour) -> None:
    colour.result = away()
    with pytest.raises(StoreError):
        colour.acquire()
    assert len(colour.store.left) == 1
    assert (colour.session.entering, colour.calls) == ({}, [])


@pytest.mark.parametrize("closed", [False, True])
def test_who_can_not_leave_says_so_unless_who_closed_has_done_it(
    colour: Colour, closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    colour.result = OSError("broken")
    leaves = colour.store.leave

    def leave(claim: Claim) -> Any:
        colour.store.failing[claim.id] = away()
        if closed:
            colour.session.entering.clear()
        return leaves(claim)

    colour.store.leave = leave  # type: ignore[method-assign]
    with pytest.raises(OSError, match="broken"):
        colour.acquire()
    assert len(caplog.messages) == (0 if closed else 1)
    assert all("could not take a claim out of the line" in each for each in caplog.messages)
    assert colour.session.entering == {}


def test_a_forked_child_begins_with_nothing(colour: Colour, monkeypatch: pytest.MonkeyPatch) -> None:
    grant = colour.acquire()
    colour.session.entering["a"] = "somebody"
    colour.session.leaving["b"] = "somebody", grant._claim
    monkeypatch.setattr(colour.module, "open_sessions", [colour.session])
    before = dict(colour.session.watchdogs) if colour.tasks else {0: colour.session.watchdog}
    colour.module._after_fork()
    assert (colour.watched, colour.session.entering, colour.session.leaving) == ([], {}, {})
    assert grant.id
    for each in before.values():
        each.stop()
