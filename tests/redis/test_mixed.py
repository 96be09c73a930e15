"""Threads and tasks of several processes contend for one lock, give up, and are killed: never two, none forgotten."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually
from tests.servers import RedisServer

WORKER = Path(__file__).with_name("mixed_worker.py")
SECONDS = 6.0
KILL_EVERY = 1.0


@pytest.mark.parametrize("kills", [False, True], ids=["in peace", "with kills"])
def test_never_two_are_in_and_fences_increase(server: RedisServer, tmp_path: Path, kills: bool) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"%-60d%-39d" % (0, 0))
    began = time.monotonic()

    def start(seed: int) -> subprocess.Popen[bytes]:
        left = max(1.0, SECONDS - (time.monotonic() - began))
        words = (sys.executable, WORKER, server.url, path, left, seed, 1.0 if kills else 30.0)
        return subprocess.Popen([str(word) for word in words])

    workers = [start(seed) for seed in range(3)]
    try:
        for seed in range(3, 3 + int(SECONDS / KILL_EVERY) - 2 if kills else 3):
            time.sleep(KILL_EVERY)  # what goes on meanwhile is the test
            workers[0].kill()
            workers[0].wait()
            workers = [*workers[1:], start(seed)]
        assert [worker.wait(60) for worker in workers] == [0, 0, 0]
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    _, number = map(int, path.read_bytes().split())
    assert number > 30  # on a machine with nothing else to do they are thousands
    with interlock.connect(server.url) as locks:
        eventually(lambda: locks.claims() == [], within=5)
    with server.wire() as wire:
        assert wire.ask("KEYS", "*") == ["interlock:2:{:mixed}"]
