"""The fixture `once_per_run` with `undo`: the last worker that used it undoes it, also after a kill -9."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import LockError, connect
from interlock.testing.once_per_run import OncePerRun
from interlock.testing.waiting import eventually

pytest.importorskip("xdist")
CONFTEST = """
import os, pathlib, time
import pytest

LOG = pathlib.Path(os.environ["LOG"])
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "alone")

def note(word):
    with LOG.open("a") as file:
        print(word, WORKER, file=file)

def until(word, times=1):
    end = time.monotonic() + 60
    while LOG.read_text().split().count(word) < times and time.monotonic() < end:
        time.sleep(0.01)

def make():
    note("make")
    return {"database": "d7"}

def drop(made):
    note("undo" if made == {"database": "d7"} else "wrong")
    if os.environ.get("KILLED_IN_UNDO") and LOG.read_text().split().count("undo") == 1:
        os.kill(os.getpid(), 9)
    if os.environ.get("FAILS"):
        raise ZeroDivisionError("by order")

@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    note("ended")

@pytest.fixture(scope="session")
def database(once_per_run):
    made = once_per_run("database", make, undo=drop)
    note("got")
    until("got", int(os.environ.get("WORKERS", 0)))  # none ends before another begins
    yield made
    note("used")
"""
ALL_USE_IT = """
import pytest

@pytest.mark.parametrize("number", range(8))
def test_it(database, number):
    assert database == {"database": "d7"}
"""
ONE_IS_KILLED = """
import os
from conftest import note, until

def test_first(database):
    note("first")
    if os.environ["KILLED"] == "first":
        os.kill(os.getpid(), 9)
    until("second")

def test_second(database):
    until("first")
    note("second")
    if os.environ["KILLED"] == "last":
        until("ended")
        os.kill(os.getpid(), 9)
"""
STORE = """
@pytest.fixture(scope="session")
def once_per_run_url():
    return os.environ["STORE"]
"""


def run(folder: Path, tests: str, *words: str, conftest: str = CONFTEST, **environment: str) -> tuple[str, list[str]]:
    """Run tests; return what was printed, and the log: lines of a word and a worker."""
    (folder / "test_program.py").write_text(tests)
    (folder / "conftest.py").write_text(conftest)
    log = folder / "log"
    log.write_text("")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "interlock.testing.plugin"]
    done = subprocess.run(
        [*command, "-p", "xdist", "--basetemp", str(folder / "base"), *words],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "LOG": str(log), **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )
    return done.stdout + done.stderr, log.read_text().splitlines()


def words_of(log: list[str], *wanted: str) -> list[str]:
    """Return the words of a log that are among `wanted`, in order."""
    return [word for word, _, _ in (line.partition(" ") for line in log) if word in wanted]


@pytest.mark.parametrize("workers", ["0", "3"])
def test_what_all_workers_use_is_made_once_and_undone_once(tmp_path: Path, workers: str) -> None:
    printed, log = run(tmp_path, ALL_USE_IT, "-n", workers, WORKERS="1" if workers == "0" else workers)
    assert "8 passed" in printed
    words = words_of(log, "make", "undo", "used", "wrong")
    assert words == ["make", *["used"] * (len(words) - 2), "undo"]


@pytest.mark.parametrize("killed", ["first", "last"])
@pytest.mark.parametrize("restart", [(), ("--max-worker-restart=0",)], ids=["replaced", "not replaced"])
def test_a_killed_worker_leaves_the_undo_to_another(tmp_path: Path, killed: str, restart: tuple[str, ...]) -> None:
    printed, log = run(tmp_path, ONE_IS_KILLED, "-n", "2", *restart, KILLED=killed)
    assert "1 failed, 1 passed" in printed
    assert words_of(log, "make", "undo", "wrong") == ["make", "undo"]


def test_a_worker_killed_in_its_undo_is_followed_by_another(tmp_path: Path) -> None:
    _, log = run(tmp_path, ALL_USE_IT, "-n", "2", "--max-worker-restart=0", KILLED_IN_UNDO="yes", WORKERS="2")
    assert words_of(log, "make", "undo", "wrong") == ["make", "undo", "undo"]
    assert len({line for line in log if line.startswith("undo")}) == 2


def test_a_failed_undo_is_an_error_of_the_run(tmp_path: Path) -> None:
    printed, log = run(tmp_path, ALL_USE_IT, "-n", "0", FAILS="yes")
    assert "8 passed, 1 error" in printed
    assert words_of(log, "undo") == ["undo"]


def test_each_run_on_one_store_makes_and_undoes_its_own(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'locks.db'}"
    for _ in range(2):
        printed, log = run(tmp_path, ALL_USE_IT, "-n", "2", conftest=CONFTEST + STORE, STORE=url, WORKERS="2")
        assert "8 passed" in printed
        assert words_of(log, "make", "undo", "wrong") == ["make", "undo"]
    with connect(url) as locks:
        assert locks.namespaces() == []


class Worker(OncePerRun):
    """A worker on a folder; its `make` and `undo` write into a log."""

    def __init__(self, folder: Path, log: list[str], name: str) -> None:
        super().__init__(connect(folder / "locks"))
        self._log = log
        self._name = name

    def use(self, undo: Callable[[object], object] | None) -> None:
        """Use the name."""
        self("schema", lambda: self._log.append(f"make {self._name}"), undo)


def test_who_begins_while_the_last_one_undoes_makes_it_again(tmp_path: Path) -> None:
    log: list[str] = []
    begun, go_on = threading.Event(), threading.Event()
    first, second = (Worker(tmp_path, log, name) for name in ("first", "second"))

    def undo(made: object) -> None:
        log.append("undo")
        begun.set()
        assert go_on.wait(60)

    first.use(undo)
    ending = threading.Thread(target=first.end)
    ending.start()
    assert begun.wait(60)
    beginning = threading.Thread(target=second.use, args=(undo,))
    beginning.start()
    with connect(tmp_path / "locks") as eye:
        eventually(lambda: [view.state for view in eye.claims("turn:schema")] == ["using", "pending"])
    go_on.set()
    for thread in (ending, beginning):
        thread.join(60)
    assert log == ["make first", "undo", "make second"]
    second.end()
    assert log == ["make first", "undo", "make second", "undo"]
    for worker in (first, second):
        worker.wait()
        worker.close()
    assert log.count("undo") == 2


def test_no_name_is_that_of_the_undo_of_another(tmp_path: Path) -> None:
    log: list[str] = []
    worker = Worker(tmp_path, log, "worker")
    for name in ("undoing:x", "x"):
        worker(name, lambda: log.append("make"), lambda made: log.append("undo"))
    worker.end()
    worker.wait()
    worker.close()
    assert log == ["make", "make", "undo", "undo"]


def test_who_finds_a_half_done_undo_finishes_it_or_is_refused(tmp_path: Path) -> None:
    log: list[str] = []
    first, second = (Worker(tmp_path, log, name) for name in ("first", "second"))

    def fails(made: object) -> None:
        raise ZeroDivisionError

    first.use(fails)
    with pytest.raises(ZeroDivisionError):
        first.end()
    with pytest.raises(LockError, match="undo="):
        second.use(None)
    second.use(lambda made: log.append("undo"))
    assert log == ["make first", "undo", "make second"]
    second.end()
    assert log[-1] == "undo"
    for worker in (first, second):
        worker.close()
