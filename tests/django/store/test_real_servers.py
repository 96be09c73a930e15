"""Sites on real servers: async views on uvicorn and Daphne, and Celery's tasks in forked workers."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
from store.shelf.models import Item
from store.test_processes import surroundings

from interlock.django import locks
from interlock.testing.waiting import eventually
from tests.servers.home import Port

HERE = Path(__file__).parent
AT_ONCE, ROUNDS = 6, 4


@pytest.fixture(autouse=True)
def emma(clean: None) -> None:
    Item.objects.create(pk=1, name="Emma")


@contextmanager
def running(*words: str, **environment: str) -> Iterator[None]:
    """Run a program during the block; then terminate it, and kill the processes that are left of it."""
    path = os.pathsep.join((str(HERE), os.environ.get("PYTHONPATH", "")))
    program = subprocess.Popen(
        [sys.executable, "-m", *words],
        env={**surroundings(), "PYTHONPATH": path, **environment},
        cwd=HERE,
        start_new_session=True,
    )
    try:
        yield
        program.terminate()
        program.wait(60)
    finally:
        with suppress(ProcessLookupError):  # the workers of one that had to be killed would stay
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()


def answers(port: int) -> bool:
    try:
        urlopen(f"http://127.0.0.1:{port}/add", timeout=60).close()
    except URLError:
        return False
    return True


@pytest.mark.parametrize("server", ["uvicorn", "daphne"])
def test_async_views_lose_no_update(server: str) -> None:
    with closing(Port()) as kept:
        port = kept.number
        options = {
            "uvicorn": ("uvicorn", "--log-level", "warning", "--port", str(port), "served_site:application"),
            "daphne": ("daphne", "-v", "0", "-b", "127.0.0.1", "-p", str(port), "served_site:application"),
        }
        with running(*options[server]):
            eventually(lambda: answers(port), 60)  # it has added one
            with ThreadPoolExecutor(AT_ONCE) as clients:
                assert all(clients.map(answers, [port] * AT_ONCE * ROUNDS))
            assert Item.objects.get().count == AT_ONCE * ROUNDS + 1
    assert [view.name for view in locks.claims()] == []


def test_tasks_in_forked_workers_of_celery_lose_no_update(tmp_path: Path) -> None:
    send = "import served_site; [served_site.add_one.delay() for _ in range(20)]"
    environment = {"INTERLOCK_TEST_FOLDER": str(tmp_path)}
    words = ("celery", "-A", "served_site:worker", "worker", "--pool", "prefork", "--concurrency", "3", "-l", "ERROR")
    with running(*words, "--without-gossip", "--without-mingle", "--without-heartbeat", **environment):
        subprocess.run([sys.executable, "-c", send], env={**surroundings(), **environment}, cwd=HERE, check=True)
        eventually(lambda: Item.objects.get().count == 20, 90)
    assert [view.name for view in locks.claims()] == []
