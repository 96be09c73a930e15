"""Celery: workers that fork or have threads, killed children, and beat on two hosts."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers import RedisServer, need
from tests.support.house import eventually

APP = """
import os, signal, sys, time
from celery import Celery
import interlock
app = Celery("app", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
app.conf.update(worker_prefetch_multiplier=1, beat_schedule_filename=f"schedule{os.getpid()}")
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
@app.task
def tick(beat, day):
    locks.once(f"nightly:{day}", keep=600).run(lambda: note("nightly", day))
    note("tick", beat)
if "beat" in sys.argv:
    app.add_periodic_task(0.2, tick.s(os.getpid(), "today"))
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
def test_tasks_exclude_each_other_and_one_whose_child_is_killed_is_done(
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


def beats(folder: Path) -> list[int]:
    """Return for each completed task the beat that sent it."""
    lines = (folder / "ledger").read_text().splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("tick")]


@pytest.mark.rare
@pytest.mark.parametrize("url", ["file", "valkey"], indirect=True)
def test_what_two_beats_send_is_done_once(
    url: str, environment: dict[str, str], start: Start, tmp_path: Path
) -> None:
    environment |= {"LOCKS": url, "INTERLOCK_URL": url}
    start(*CELERY, "worker", "-c", "2", "--without-mingle")
    for _ in range(2):
        start(*CELERY, "beat")
    eventually(lambda: len(set(beats(tmp_path))) == 2, "both beat")
    assert (tmp_path / "ledger").read_text().count("nightly") == 1


@pytest.mark.rare
@pytest.mark.parametrize("url", ["file", "valkey"], indirect=True)
def test_of_two_beats_under_an_election_one_beats(
    url: str, environment: dict[str, str], start: Start, tmp_path: Path
) -> None:
    environment |= {"LOCKS": url, "INTERLOCK_URL": url}
    start(*CELERY, "worker", "-c", "2", "--without-mingle")
    lead = [sys.executable, "-m", "interlock", "lead", "--ttl", "2", "beat", "--", *CELERY, "beat"]
    hosts = [start(*lead) for _ in range(2)]
    eventually(lambda: len(beats(tmp_path)) > 10, "one beats")
    (first,) = set(beats(tmp_path))
    guard = _parent(first)
    next(host for host in hosts if host.pid == _parent(guard)).kill()
    eventually(lambda: beats(tmp_path)[-1] != first, "the other beats")
    count = len(beats(tmp_path))
    eventually(lambda: len(beats(tmp_path)) > count + 10, "it goes on")
    assert len(set(beats(tmp_path)[count:])) == 1


def _parent(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[1])
