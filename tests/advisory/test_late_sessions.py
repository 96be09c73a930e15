"""What is opened, or ends, while the last connection of a process to a server is being closed."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.stores.advisory.session import AdvisorySession
from interlock.stores.advisory.sessions import AdvisorySessions


class Silent(AdvisorySession):
    """A session without a server."""

    def __init__(self) -> None:
        super().__init__()
        self.closes = 0

    def _owes(self) -> bool:
        return False

    def _close(self) -> None:
        self.closes += 1


def sessions_that_open(open: Callable[[Any], AdvisorySession]) -> AdvisorySessions:
    """Return the sessions of a process that has none yet."""
    return AdvisorySessions(None, open, threading.RLock())  # type: ignore[arg-type]


@pytest.mark.parametrize("which", ["main", "apart"])
def test_a_session_that_was_being_opened_meanwhile_ends_too(which: str) -> None:
    opened: list[Silent] = []

    def open(options: Any) -> AdvisorySession:
        opened.append(Silent())
        sessions.end()  # in another thread: a server may take seconds
        return opened[-1]

    sessions = sessions_that_open(open)
    with pytest.raises(StoreError, match="was closed: connect again"):
        if which == "main":
            sessions.open_main()
        else:
            sessions.add_apart(sessions.open_apart())
    assert [(session.alive, session.closes) for session in opened] == [(False, 1)]
    assert sessions.open() == []


def test_a_session_that_is_lost_after_it_and_that_somebody_talks_to_is_closed() -> None:
    sessions = sessions_that_open(lambda options: Silent())
    before, after = Silent(), Silent()
    talks, over = threading.Event(), threading.Event()

    def talk() -> None:
        with before.mutex, after.mutex:
            talks.set()
            over.wait(20)

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        assert talks.wait(20)
        sessions.close(before)
        assert before.closes == 0, "its reader is to come out first"
        sessions.end()
        sessions.close(after)
        assert (before.closes, after.closes) == (1, 1)
    finally:
        over.set()
        thread.join(20)
