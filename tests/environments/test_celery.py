"""Celery: workers that fork or have threads, and killed children."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import RedisServer, need

APP = """
import os, signal, sys, time
from celery import Celery
import interlock
app = Celery("app", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(worker_prefetch_multiplier=1)
locks = interlock.connect(os.environ["LOCKS"], namespace="shop")
with locks.lock("count"): pass
of_parent = locks.lock(f"of {os.getpid()}").acquire()
def note(*words):
    with open("ledger", "a") as ledger: print(*words, file=ledger)
def ready():
    while len(app.control.ping(timeout=0.5)) < 2: pass
@app.task
def count():
    with locks.lock("count", timeout=60):
        os.close(os.open("inside", os.O_CREAT | os.O_EXCL))
        time.sleep(0.002)
        os.unlink("inside")
    return [os.getpid(), of_parent.held]
@app.task(acks_late=True, reject_on_worker_lost=True)
def late():
    with locks.lock("late", ttl=2, timeout=60) as grant:
        note("late", grant.fence)
        if len(open("ledger").readlines()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    return "done"
@app.task
def long():
    with locks.lock("long", ttl=1) as grant:
        time.sleep(1.5)
        return [grant.held, locks.lock("long").acquire(timeout=0) is None]
"""
CELERY = [sys.executable, "-m", "celery", "-A", "app"]
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of the processes, with a private broker; the app is in the test's folder."""
    pytest.importorskip("celery")
    need("valkey")
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "ledger").touch()
    path = os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", "")))
    with RedisServer("valkey") as broker:
        yield {**os.environ, "BROKER": broker.url, "PYTHONPATH": path}


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts a process of the app; all processes end with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> "subprocess.Popen[bytes]":
        with (tmp_path / "log").open("ab") as log:
            started.append(subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=log, stderr=log))
        return started[-1]

    yield start
    for process in started:
        process.terminate()
    for process in started:
        process.wait(60)


def ask(environment: dict[str, str], folder: Path, code: str) -> Any:
    """Return the output of a client of the workers, evaluated as Python."""
    words = [sys.executable, "-c", f"from app import *\nprint(repr({code}))"]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


@pytest.mark.rare
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_tasks_exclude_each_other_and_survive_a_killed_child(
    pool: str, url: str, environment: dict[str, str], start: Start, tmp_path: Path
) -> None:
    environment["LOCKS"] = url
    for number in range(2):
        start(*CELERY, "worker", "--pool", pool, "-c", "3", "-n", f"{number}@here", "--without-mingle")
    counts = "[each.get(timeout=60) for each in [count.delay() for _ in range(60)]]"
    told = ask(environment, tmp_path, f"ready() or {counts}")
    assert {held for _, held in told} == {pool == "threads"}  # in a child it is the parent's
    assert len({pid for pid, _ in told}) >= 2
    assert ask(environment, tmp_path, "long.delay().get(timeout=60)") == [True, True]
    if pool == "prefork":
        assert ask(environment, tmp_path, "late.delay().get(timeout=60)") == "done"
        fences = [int(line.split()[1]) for line in (tmp_path / "ledger").read_text().splitlines()]
        assert len(fences) == 2
        assert fences[0] < fences[1]
