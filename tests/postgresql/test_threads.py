"""Where no thread can be started that listens, waiters look by themselves."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import interlock
from interlock.testing.waiting import eventually


def test_who_can_not_listen_gets_the_lock_all_the_same(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, threading.Event()

    def refuses(thread: threading.Thread) -> None:
        if thread.name == "interlock-listens":
            refused.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuses)
    with interlock.connect(url) as locks, interlock.connect(url) as others, ThreadPoolExecutor() as pool:
        grant = others.lock("a").acquire()
        assert grant is not None
        waiting = pool.submit(locks.lock("a").acquire)
        assert refused.wait(20)
        eventually(lambda: len(others.claims("a")) == 2)
        assert not locks._session.store._listener.live  # type: ignore[attr-defined]
        grant.release()
        got = waiting.result(20)
        assert got is not None
        assert got.release() is True
