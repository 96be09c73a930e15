"""Interrupts by real signals, thousands of them, at whatever line they come: nothing stays behind, nothing hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

STRUCK = """
import faulthandler, random, signal, sys, time
import interlock

faulthandler.dump_traceback_later(60, exit=True)
url, kind, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
locks, eye = interlock.connect(url, ttl=1.0), interlock.connect(url)
lock = locks.rlock("a") if kind == "rlock" else locks.lock("a")

def strike(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)
struck, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0006))
            while True:
                with lock, (lock if kind == "rlock" else locks.lock("b")):
                    pass
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        struck += 1
    moment = time.monotonic()
    while eye.claims():
        assert time.monotonic() < moment + 10, eye.claims()
        time.sleep(0.01)
assert struck > 20, struck
"""


@pytest.mark.parametrize("kind", ["lock", "rlock"])
@pytest.mark.parametrize("store", ["memory", "file"])
def test_a_hail_of_interrupts_leaves_nothing_and_hangs_nowhere(store: str, kind: str, tmp_path: Path) -> None:
    url = "memory://struck" if store == "memory" else f"file://{tmp_path}/locks"
    done = subprocess.run([sys.executable, "-c", STRUCK, url, kind, "4"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
