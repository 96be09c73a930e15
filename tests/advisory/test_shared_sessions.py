"""A session that one waiter leaves is taken by the next: what the first still does is not done to the second."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import eventually, throughout
from tests.support.stores import PARTIAL_ROWS, Row

rows = pytest.mark.parametrize("row", PARTIAL_ROWS, ids=lambda row: row.name)


def room_of(locks: Any) -> Any:
    """Return what a connection shares with all of this process that have the same options."""
    return locks._session.store._room


def started(work: Callable[[], object]) -> threading.Thread:
    """Return a thread that does it."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def states(locks: interlock.Locks, name: str) -> list[str]:
    """Return how the claims of a connection stand."""
    return [place.state for place in room_of(locks).places if place.claim.spec.key.endswith(name)]


@rows
def test_a_wait_that_ends_late_does_not_end_the_next_one_on_its_session(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = row.place(tmp_path).url
    assert url is not None
    got: dict[str, Any] = {}

    def takes(locks: interlock.Locks, name: str) -> threading.Thread:
        return started(lambda: got.update({name: locks.lock(name).acquire(timeout=30)}))

    with interlock.connect(f"{url}?max_waiting=1") as locks, interlock.connect(url) as others:
        room = room_of(locks)
        holders: Any = [others.lock(name).acquire() for name in ("first", "second")]
        breaks_off, left, goes_on = room._break_off, threading.Event(), threading.Event()

        def breaks_off_late(*of_whom: Any) -> None:
            left.set()
            assert goes_on.wait(20)
            breaks_off(*of_whom)

        monkeypatch.setattr(room, "_break_off", breaks_off_late)
        first = takes(locks, "first")
        eventually(lambda: [each.waits_for is not None for each in room.sessions.apart] == [True])
        (session,), (place,) = room.sessions.apart, room.places
        second = takes(locks, "second")
        eventually(lambda: states(locks, "second") == ["pending"])
        evicts = started(lambda: room.end(place))
        assert left.wait(20)
        # The first one's wait is granted while its end is on the way, and the second one waits on that session.
        assert holders[0].release() is True
        eventually(lambda: session.waits_for is not None and any(each.session is session for each in room.places))
        goes_on.set()
        evicts.join(20)
        assert holders[1].release() is True
        for name, thread in {"first": first, "second": second}.items():
            thread.join(20)
            assert got[name].held
            assert got[name].release() is True


@rows
def test_who_was_evicted_before_it_asked_does_not_ask_on_the_session_of_another(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = row.place(tmp_path).url
    assert url is not None
    got: list[Any] = []
    with interlock.connect(f"{url}?max_waiting=2") as locks, interlock.connect(url) as others:
        held: Any = {name: others.lock(name).acquire() for name in ("evicted", "other")}
        room = room_of(locks)
        assert locks.lock("evicted").acquire(timeout=0.2) is None  # it leaves a session behind
        eventually(lambda: [each.waits_for for each in room.sessions.apart] == [None])
        (session,) = room.sessions.apart
        kind = type(session)
        begins: Any = kind.begin
        wants: dict[str, threading.Thread] = {}

        def begins_late(self: Any, key: int, shared: bool) -> None:
            if not wants:
                (place,) = room.places
                wants["evicted"] = started(lambda: room.end(place))
                eventually(lambda: not room.places)
                wants["other"] = started(lambda: got.append(locks.lock("other").acquire(timeout=20)))
                eventually(lambda: [each.session is not None for each in room.places] == [True])
            begins(self, key, shared)

        monkeypatch.setattr(kind, "begin", begins_late)
        evicted = started(lambda: locks.lock("evicted").acquire(timeout=1))
        eventually(lambda: "other" in wants)
        assert held["evicted"].release() is True
        throughout(0.5, lambda: not got)
        for each in (evicted, wants["evicted"]):
            each.join(20)
        assert held["other"].release() is True
        wants["other"].join(20)
        assert got[0].held
        assert got[0].fence > held["other"].fence
        assert got[0].release() is True
