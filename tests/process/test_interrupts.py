"""Interrupts by real signals, at any line: a claim that is left ends with its lease or by `release()`."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from interlock.runtime import _threads

STRIKES = 40

STRUCK = """
import faulthandler, random, signal, sys, time
import interlock

faulthandler.dump_traceback_later(100, exit=True)
url, kind, strikes = sys.argv[1], sys.argv[2], int(sys.argv[3])
locks, eye = interlock.connect(url, ttl=0.5), interlock.connect(url)
lock, other = (locks.rlock("a"),) * 2 if kind == "rlock" else (locks.lock("a"), locks.lock("b"))

def strike(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)
for _ in range(strikes):
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0006))
            while True:
                with lock, other:
                    pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    for each in (lock, other):  # the process lives on, and may hold a grant that the program never received
        try:
            while True:
                each.release()
        except interlock.NotHeld:
            pass
    moment = time.monotonic()
    while eye.claims():
        assert time.monotonic() < moment + 20, eye.claims()
        time.sleep(0.01)
"""


@pytest.mark.parametrize("kind", ["lock", "rlock"])
@pytest.mark.parametrize("store", ["memory", "file"])
def test_repeated_interrupts_cause_no_hang_and_no_lasting_claim(store: str, kind: str, tmp_path: Path) -> None:
    url = "memory://struck" if store == "memory" else f"file://{tmp_path}/locks"
    command = [sys.executable, "-c", STRUCK, url, kind, str(STRIKES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_inside_of_threading_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupts, lock = [KeyboardInterrupt()], threading.Lock()

    def start(thread: threading.Thread) -> None:
        if not interrupts:
            raise RuntimeError("can't start new thread")
        with lock:
            lock.release()  # as a Condition that is interrupted in its wait
            raise interrupts.pop()

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        _threads.start_background("interlock-test", print)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:  # no interrupt: the caller handles it
        assert _threads.start_background("interlock-test", print) is None
