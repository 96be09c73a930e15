"""The thread that watches sessions: it ends at once, misses nobody who comes while it looks, and may not be had."""

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import interlock
from interlock.stores.advisory.watching import LONGEST, Watcher
from interlock.testing.waiting import Moment, eventually, moment, since
from tests.support.stores import PARTIAL_ROWS, Row


def room(places: Any = ()) -> Any:
    """Return what is watched: no session, and these claims."""
    return SimpleNamespace(sessions=[], places=places, mutex=threading.RLock())


def test_it_ends_at_once_though_it_wakes_before_the_next_line_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write

    def write_and_pause(*what: Any) -> int:
        written = write(*what)
        time.sleep(0.05)
        return written

    monkeypatch.setattr(os, "write", write_and_pause)
    watcher = Watcher(room())
    watcher.wake()
    eventually(lambda: watcher._wakes > time.monotonic())
    began = moment()
    watcher.stop()
    assert since(began) < LONGEST / 2


def test_a_lease_that_begins_while_it_looks_is_looked_at_when_it_ends() -> None:
    looks: list[Moment] = []

    class Places:
        def __iter__(self) -> Any:
            looks.append(moment())
            if len(looks) == 5:  # each look counts twice: the third one has slept as long as it may
                watcher.mind(time.monotonic() + 0.05)  # as a claim does that comes behind those that it has seen
            return iter(())

    watcher = Watcher(room(Places()))
    watcher.wake()
    eventually(lambda: len(looks) >= 7)
    assert since(looks[4]) < LONGEST / 2
    watcher.stop()


@pytest.mark.parametrize("row", PARTIAL_ROWS, ids=lambda row: row.name)
def test_without_a_thread_nobody_gets_a_lock_whose_loss_nobody_would_hear_of(
    row: Row, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuses(thread: threading.Thread) -> None:
        if thread.name == "interlock-advisory":
            raise RuntimeError("can't start new thread")
        start(thread)

    url = f"{row.place(tmp_path).url}?max_locks=97"  # what no other test shares
    with interlock.connect(url) as locks:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuses)
            with pytest.raises(interlock.StoreError, match="no thread"):
                locks.lock("a").acquire(timeout=0)
            assert locks.claims() == []
        with locks.lock("a"):
            assert len(locks.claims()) == 1
