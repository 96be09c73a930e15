"""Events: who is told, of which claims, with which figures, and what is written into the log."""

import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from interlock import connect
from interlock.core.acquire import AcquireCall
from interlock.core.claims import SEPARATOR, Claim, ClaimView, LockSpec
from interlock.core.errors import InvalidArgument, StoreError
from interlock.locks import events, session
from interlock.locks.closing import call_off, claim_of, owner_of
from interlock.client.events import Event
from interlock.client.base import BaseSession, closed_meanwhile, name_of
from interlock.runtime import log

KEY = f"app{SEPARATOR}door"
CLAIM = Claim("a", LockSpec(KEY, label="night"))


class Line:
    """A store whose line can be looked at, or not."""

    def __init__(self) -> None:
        self.views = [view("a", 5), view("b", 6), view("c", None)]
        self.asked: list[Any] = []

    def look(self, key: str) -> Iterator[Any]:
        """Return who is in line."""
        self.asked.append(("look", key))
        if not self.views:
            raise StoreError("away")
        return self.views
        yield

    def evict(self, key: str, id: str | None) -> Iterator[Any]:
        """Remove one that is there, or two."""
        self.asked.append(("evict", key, id))
        return 0 if id == "none" else 2 if id is None else 1
        yield


def view(id: str, fence: int | None) -> ClaimView:
    """Return a claim as others see it."""
    return ClaimView("door", id, "using", 2, 3, fence, "host", 7, "t", f"label {id}", 0.0, 30.0)


class Here:
    """A session on such a line, what it told, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store = Line()
        self.session = BaseSession("Locks", self.store, "app", 30.0)  # type: ignore[arg-type]
        self.told: list[Event] = []
        self.stop = events.listen(self.session.listeners, self.told.append)
        monkeypatch.setattr(session, "monotonic", lambda: 257.5)

    def evict(self, id: str | None) -> Any:
        """Return how many were evicted."""
        with pytest.raises(StopIteration) as ended:
            next(self.session.evict(KEY, id))
        return ended.value.value


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """A session with a listener."""
    return Here(monkeypatch)


def evicted(id: str, fence: int | None, label: str) -> Event:
    return Event("evicted", "door", id, fence, label, None, None)


def test_only_what_was_evicted_is_told_with_what_was_known_of_it(here: Here) -> None:
    assert here.evict("b") == 1
    assert here.told == [evicted("b", 6, "label b")]
    here.told.clear()
    assert here.evict(None) == 2
    assert here.told == [evicted("a", 5, "label a"), evicted("b", 6, "label b")]
    here.told.clear()
    assert here.evict("x") == 1
    assert here.told == [evicted("x", None, "")], "it came after the look"
    here.told.clear()
    assert here.evict("none") == 0
    assert here.told == []


def test_a_line_that_can_not_be_looked_at_is_evicted_all_the_same(here: Here) -> None:
    here.store.views = []
    assert (here.evict("b"), here.evict(None)) == (1, 2)
    assert here.told == [evicted("b", None, "")]


def test_nobody_looks_while_nobody_listens(here: Here) -> None:
    here.stop()
    here.stop()
    assert here.session.heard is False
    assert here.evict("b") == 1
    assert here.store.asked == [("evict", KEY, "b")]
    here.session.closed = True
    with pytest.raises(StoreError, match="this connection was closed: connect again"):
        here.evict("b")


def test_an_event_says_how_long_its_call_has_waited(here: Here) -> None:
    here.session.tell("timed out", CLAIM, started=100.0)
    here.session.tell("released", CLAIM, fence=5, held=3.0, reason="why")
    assert here.told == [
        Event("timed out", "door", "a", None, "night", 157.5, None, ""),
        Event("released", "door", "a", 5, "night", None, 3.0, "why"),
    ]


def test_a_claim_that_waited_and_is_gone_is_told_before_the_next_one_waits(here: Here) -> None:
    call = AcquireCall(CLAIM, 100.0, None, True)
    here.session.left_line(call)
    here.session.queued(call)
    here.session.left_line(call)
    call.claim = CLAIM._replace(id="b")
    here.session.queued(call)
    call.claim = CLAIM._replace(id="c")
    here.session.left_line(call)
    here.session.left_line(call)
    kinds = [(event.kind, event.id, event.waited, event.reason[:18]) for event in here.told]
    assert kinds == [
        ("queued", "a", 157.5, ""),
        ("withdrawn", "a", 157.5, "its claim was gone"),
        ("queued", "b", 157.5, ""),
        ("withdrawn", "b", 157.5, "its claim was gone"),
    ]


class Granted:
    """A grant that says what it is asked to tell."""

    def __init__(self, acquired_at: float | None) -> None:
        self._acquired_at = acquired_at
        self.told: list[tuple[str, str]] = []

    def _tell(self, kind: str, reason: str) -> None:
        self.told.append((kind, reason))


def test_a_call_that_an_error_broke_off_is_told_if_its_beginning_was(here: Here) -> None:
    call = AcquireCall(CLAIM, 100.0, None, True)
    error = KeyError("no")
    for grant in (None, Granted(None)):
        here.session.broken_off(None, grant, error)
        here.session.broken_off(call, grant, error)
    assert here.told == []
    call.queued = CLAIM
    held, unheard = Granted(0.0), Granted(None)
    here.session.broken_off(call, held, error)
    assert (held.told, here.told) == ([("released", "'no'")], [])
    here.session.broken_off(call, unheard, error)
    here.session.broken_off(call, None, error)
    assert unheard.told == []
    assert here.told == [Event("withdrawn", "door", "a", None, "night", 157.5, None, "KeyError: 'no'")] * 2


def test_whose_call_it_is_and_what_to_take_out_is_known_of_both_kinds() -> None:
    woken: list[str] = []
    call = AcquireCall(CLAIM, 100.0, None, True, owner="ann")
    call.wakeup = type("Wakeup", (), {"wake": lambda self: woken.append("ann")})()
    for each, owner in (((CLAIM, "bob"), "bob"), (call, "ann")):
        assert (claim_of(each), owner_of(each)) == (CLAIM, owner)
        call_off(each)
        call_off(each)
    assert (call.closed, woken) == (True, ["ann"])
    assert name_of(KEY) == "door"
    assert str(closed_meanwhile(CLAIM.spec)) == ("the connection was closed while 'door' was acquired: connect again")


def test_the_log_listens_while_its_logger_is_enabled_and_is_asked_once_a_second(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert here.session.look_at_log == 0.0
    for enabled in (True, False):
        monkeypatch.setattr(log, "debugs", lambda: enabled)  # noqa: B023 - asked at once
        here.session.listen_for_log(50.0)
        assert (events.write in here.session.listeners) is enabled
        assert here.session.look_at_log == 51.0


def test_a_session_says_where_it_is_and_asks_again_by_its_settings(here: Here) -> None:
    assert repr(here.session) == "<Locks on Line, namespace='app'>"
    here.session.source = print, "redis://me:secret@host"
    assert repr(here.session) == "<Locks on redis://me:***@host, namespace='app'>"
    assert here.session.connect_again() == (print, ("redis://me:secret@host", "app", 30.0))
    here.session.namespace = ""
    assert repr(here.session) == "<Locks on redis://me:***@host>"


def test_who_listens_everywhere_hears_old_and_new_connections_until_it_stops() -> None:
    heard: list[Event] = []
    with connect(f"memory://{uuid4().hex}") as old:
        stop = events.subscribe(heard.append)
        also = events.subscribe(heard.append)
        with connect(f"memory://{uuid4().hex}") as new:
            for locks, name in ((old, "a"), (new, "b")):
                assert len(locks._session.listeners) == 2
                locks.lock(name).acquire(timeout=0).release()  # type: ignore[union-attr]
            kinds = [(event.kind, event.name) for event in heard]
            assert kinds == [(kind, name) for name in "ab" for kind in ("acquired", "released") for _ in range(2)]
            for end in (stop, stop, also):
                end()
                assert [len(each._session.listeners) for each in (old, new)] == [1 if end is stop else 0] * 2
    assert events.EVERYWHERE == {}


@pytest.mark.parametrize("wrong", [None, 5, "print"])
def test_what_can_not_be_called_does_not_listen(wrong: Any, here: Here) -> None:
    for subscribe in (events.subscribe, lambda each: events.listen(here.session.listeners, each)):
        with pytest.raises(InvalidArgument, match=f"function of one argument, the event, not {wrong!r}"):
            subscribe(wrong)


def test_a_listener_that_fails_holds_back_no_other_and_is_logged(
    here: Here, caplog: pytest.LogCaptureFixture
) -> None:
    listeners: events.Listeners = {}

    def failing(event: Event) -> None:
        raise KeyError(event.name)

    events.listen(listeners, failing)
    events.listen(listeners, here.told.append)
    events.tell(listeners, evicted("a", 5, ""))
    assert here.told == [evicted("a", 5, "")]
    assert "a listener failed at Event(kind='evicted'" in caplog.text


WHOLE = Event("released", "door", "a", 5, "night", 0.25, 1.5, "why")


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (
            WHOLE,
            "released 'door' (id a, fence 5, label 'night', waited 0.250000 s, held 1.500000 s): why",
        ),
        (Event("queued", "door", "a", None, "", None, None), "queued 'door' (id a)"),
        (Event("acquired", "door", "a", 0, "", 0.0, 0.0), "acquired 'door' (id a)"),
        (WHOLE._replace(kind="lost"), None),
        (WHOLE._replace(kind="renewal failed"), None),
    ],
)
def test_an_event_is_a_line_of_the_log_except_what_is_a_warning_there(
    event: Event, line: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "interlock"):
        events.write(event)
    assert [each.getMessage() for each in caplog.records] == ([] if line is None else [line])
