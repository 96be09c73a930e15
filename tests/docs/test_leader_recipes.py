"""The recipes for one leader, with real workers: uvicorn, gunicorn, Django, and celery beat on two hosts."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.testing.waiting import eventually
from tests.docs.pages import ROOT

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
    """The environment of workers that share a folder of file://."""
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
    """A list of processes, which are ended after the test."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.terminate()
    for process in found:
        process.wait(60)


def pids(environment: dict[str, str]) -> list[int]:
    """Return the process that did the work, for each run."""
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
    eventually(lambda: len(pids(environment)) >= 3)
    (first,) = set(pids(environment))
    os.kill(first, signal.SIGKILL)  # its lock is free at once, and another worker leads
    eventually(lambda: pids(environment)[-1] != first)
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
    eventually(lambda: pids(environment))
    (first,) = pids(environment)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: len(pids(environment)) == 2)


GUNICORN = [sys.executable, "-m", "gunicorn", "--bind", "127.0.0.1:0", "--log-level", "error", "--no-control-socket"]
APP = """
def app(environ, start_response):
    start_response("204 No Content", [])
    return []
"""
SETTINGS = """
import os
SECRET_KEY = "x"
INSTALLED_APPS = ["interlock.django"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["LEDGER"] + ".sqlite3"}}
"""


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["loaded by each", "preloaded"])
def test_of_two_workers_of_gunicorn_one_leads(
    preload: list[str], environment: dict[str, str], started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "shop.py").write_text(APP)
    words = ["-c", str(ROOT / "examples/recipes/gunicorn_leader.py"), "--workers", "2", *preload, "shop:app"]
    with interlock.connect(environment["INTERLOCK_URL"]) as locks:
        started.append(subprocess.Popen([*GUNICORN, *words], env=environment, cwd=tmp_path))
        _one_leads_after_the_other(environment, locks, 2)
        (leader,) = [view.pid for view in locks.claims("periodic") if view.state == "using"]
        os.kill(leader, signal.SIGTERM)  # it ends in order: another one leads, and its lease need not end
        eventually(lambda: pids(environment)[-1] != leader)


def test_of_two_hosts_of_a_django_site_one_leads(
    environment: dict[str, str], started: list["subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    pytest.importorskip("gunicorn")
    (tmp_path / "site_settings.py").write_text(SETTINGS)
    environment["DJANGO_SETTINGS_MODULE"] = "site_settings"
    words = ["--workers", "1", "examples.recipes.django_leader:application"]
    with interlock.connect(f"file://{environment['LEDGER']}.sqlite3-locks") as locks:
        both = [subprocess.Popen([*GUNICORN, *words], env=environment, cwd=tmp_path) for _ in range(2)]
        started.extend(both)
        _one_leads_after_the_other(environment, locks, 2)
        both.pop().terminate()
        last = eventually(lambda: len(locks.claims("periodic")) == 1 and locks.claims("periodic")[0].pid)
        eventually(lambda: pids(environment)[-1] == last)


def _one_leads_after_the_other(environment: dict[str, str], locks: interlock.Locks, stand: int) -> None:
    """See that of all that stand one works, and when it is killed another one, with a higher fence."""
    eventually(lambda: len(locks.claims("periodic")) == stand)
    known = len(pids(environment))
    eventually(lambda: len(pids(environment)) > known + 3)
    (view,) = [view for view in locks.claims("periodic") if view.state == "using"]
    assert set(pids(environment)) == {view.pid}
    os.kill(view.pid, signal.SIGKILL)
    eventually(lambda: pids(environment)[-1] != view.pid)
    assert len(set(pids(environment))) == 2
    eventually(lambda: len(locks.claims("periodic")) == stand)
    (after,) = [each for each in locks.claims("periodic") if each.state == "using"]
    assert after.fence is not None
    assert view.fence is not None
    assert after.fence > view.fence
