"""The recipes of one leader, with real workers: APScheduler among uvicorn's workers, celery beat on two hosts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.house import eventually

BEAT = """
import os
from celery import Celery

app = Celery("beat_app", broker="memory://")
app.conf.beat_schedule_filename = os.environ["SCHEDULE"] + str(os.getpid())

@app.on_after_configure.connect
def note(sender, **_):
    with open(os.environ["LEDGER"], "a") as ledger:
        print(os.getpid(), file=ledger)
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of workers that share a folder of locks."""
    path = os.pathsep.join((str(tmp_path), str(ROOT), str(ROOT / "src")))
    (tmp_path / "ledger").touch()
    return {
        **os.environ,
        "INTERLOCK_URL": f"file://{tmp_path}/locks",
        "LEDGER": str(tmp_path / "ledger"),
        "SCHEDULE": str(tmp_path / "schedule"),
        "PYTHONPATH": path,
    }


@pytest.fixture
def started() -> Iterator[list["subprocess.Popen[bytes]"]]:
    """Processes that are ended at the end."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.terminate()
    for process in found:
        process.wait(60)


def pids(environment: dict[str, str]) -> list[int]:
    """Return who has done the work, each time."""
    return [int(line) for line in Path(environment["LEDGER"]).read_text().split()]


def test_apscheduler_runs_in_one_of_four_workers(
    environment: dict[str, str], started: list["subprocess.Popen[bytes]"]
) -> None:
    pytest.importorskip("apscheduler")
    words = [
        "-m",
        "uvicorn",
        "examples.recipes.scheduler:app",
        "--workers",
        "4",
        "--port",
        "0",
        "--log-level",
        "error",
    ]
    started.append(subprocess.Popen([sys.executable, *words], env=environment, cwd=ROOT))
    eventually(lambda: len(pids(environment)) >= 3, "the job runs")
    (first,) = set(pids(environment))
    os.kill(first, signal.SIGKILL)  # its lock is free at once, and another worker leads
    eventually(lambda: pids(environment)[-1] != first, "another worker runs the job")
    assert len(set(pids(environment))) == 2


def test_celery_beat_runs_on_one_of_two_hosts(
    environment: dict[str, str], started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    pytest.importorskip("celery")
    (tmp_path / "beat_app.py").write_text(BEAT)
    celery = [sys.executable, "-m", "celery", "-A", "beat_app", "beat", "--loglevel", "error"]
    words = [sys.executable, "-m", "interlock", "lead", "beat", "--", *celery]
    both = [subprocess.Popen(words, env=environment, cwd=tmp_path, stdout=subprocess.DEVNULL) for _ in range(2)]
    started.extend(both)
    eventually(lambda: pids(environment), "one beats")
    (first,) = pids(environment)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(pids(environment)) == 2, "one beats again")
