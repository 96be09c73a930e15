"""A call that is interrupted when it has asked for a wait: nobody takes the answer for that of another question."""

import threading
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.testing.waiting import eventually, throughout
from tests.support.stores import PARTIAL_ROWS, Row

ASKS = {"postgresql+advisory": "_send", "mysql+advisory": "_do"}
"""The step of `begin` that asks."""


@pytest.mark.parametrize("row", PARTIAL_ROWS, ids=lambda row: row.name)
def test_the_next_wait_is_not_granted_by_the_answer_of_an_interrupted_one(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = row.place(tmp_path).url
    assert url is not None
    with interlock.connect(url) as locks:
        first, second = locks.lock("first").acquire(), locks.lock("second").acquire()
        room: Any = locks._session.store._room
        kind = type(room.sessions.main)
        ask = getattr(kind, ASKS[row.name])

        def asks(session: Any, *what: Any) -> Any:
            answer = ask(session, *what)
            if session in room.sessions.apart:  # a session of those that wait, and the first question on it
                raise KeyboardInterrupt
            return answer

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(kind, ASKS[row.name], asks)
            locks.lock("first").acquire(timeout=20)
        got: list[Any] = []
        waiting = threading.Thread(target=lambda: got.append(locks.lock("second").acquire(timeout=20)))
        waiting.start()
        eventually(lambda: [view.state for view in locks.claims("second")] == ["using", "pending"])
        assert first.release() is True  # the interrupted wait would be granted now
        throughout(0.3, lambda: not got)
        with locks.lock("first", timeout=5):
            assert second.release() is True
        waiting.join(20)
        assert got[0].held
        assert got[0].fence > second.fence
        assert got[0].release() is True
