"""An acquire by a thread, and what the program is told beside."""

import threading
from types import SimpleNamespace

import pytest

from interlock.core.acquire import Held
from interlock.locks.sync import session as of_threads
from interlock.testing.waiting import eventually
from tests.support.spied_session import NOW, Colour


def test_who_closed_before_a_fork_has_closed_in_the_child(threads: Colour) -> None:
    assert threads.session.closing.acquire(blocking=False)
    threads.session.start_afresh()
    assert threads.session.closing.acquire(blocking=False)
    threads.session.closed = True
    threads.session.start_afresh()
    assert not threads.session.closing.acquire(blocking=False)


def test_a_store_without_a_fast_path_is_waited_for_by_threads(threads: Colour) -> None:
    threads.session.enter_now = None
    threads.answer = lambda call: Held(call.claim, 9, NOW + 12.0)
    assert threads.acquire().fence == 9
    assert threads.calls[0].first is None


def test_what_the_program_is_told_runs_beside_in_a_thread_that_no_exit_waits_for(
    threads: Colour, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, bool]] = []

    def told(*_: object) -> None:
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon))
        raise SystemExit

    quiet, grant = threads.acquire(), threads.acquire(on_lost=told)
    of_threads._tell_lost(quiet)
    of_threads._tell_lost(grant)
    eventually(lambda: caplog.messages)
    assert seen == [("interlock-on-lost", True)]
    assert "on_lost of <Grant 'door'" in caplog.messages[0]
    of_threads._call_on_lost(quiet)
    assert len(caplog.messages) == 1
    threads.session.listeners[lambda event: seen.append((event.reason, threading.current_thread().daemon))] = None
    of_threads._tell([grant, quiet], "renewed", "why")
    eventually(lambda: len(seen) == 3)
    assert seen[1:] == [("why", True)] * 2


def test_where_no_thread_can_be_started_nobody_is_told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refused(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(of_threads, "threading", SimpleNamespace(Thread=Refused))
    of_threads._beside("interlock-events", print)
    assert caplog.messages == ["no thread could be started to call events: can't start new thread"]
