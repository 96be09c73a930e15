"""Which old locks exclude interlock's: each statement of docs/coming-from, with the real libraries.

The same for programs that hold both while a site moves over.

(django-redis and django-pglock: in the preludes of their pages, which need a configured Django.)
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import fasteners
import portalocker
import pytest
import redis_lock
from filelock import FileLock
from redis import Redis

import interlock
from interlock.redis import ClientLock, KeyLock
from tests.servers import RedisServer, need

Held = Callable[[Path], AbstractContextManager[Any]]


@contextmanager
def flock(path: Path) -> Iterator[None]:
    """Hold a path by flock(1); raise `TimeoutError` if another process holds it."""
    words = ["flock", "-n", "-E", "42", str(path), "-c", "echo held; read line"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        if process.stdout.readline() != "held\n":
            raise TimeoutError
        yield
        process.stdin.write("\n")


@contextmanager
def fasteners_lock(path: Path) -> Iterator[None]:
    """Hold a path by fasteners."""
    lock = fasteners.InterProcessLock(path)
    if not lock.acquire(blocking=False):
        raise TimeoutError
    yield
    lock.release()


HOLDERS: dict[str, Held] = {
    "flock": flock,
    "filelock": lambda path: FileLock(path, timeout=0),
    "portalocker": lambda path: portalocker.Lock(path, timeout=0, fail_when_locked=True),
    "fasteners": fasteners_lock,
}


@pytest.mark.parametrize("who", HOLDERS)
def test_a_kernel_lock_and_a_line_do_not_exclude_each_other(who: str, tmp_path: Path) -> None:
    path = tmp_path / "report"
    with interlock.connect((tmp_path / "locks").as_uri()) as locks:
        for name in (str(path), "report"):
            with HOLDERS[who](path), locks.lock(name, timeout=0):
                pass
            with locks.lock(name, timeout=0), HOLDERS[who](path):
                pass


COUNT = """
import sys
from contextlib import ExitStack
from pathlib import Path
from filelock import FileLock
import interlock
kind, folder = sys.argv[1], Path(sys.argv[2])
locks = interlock.connect((folder / "locks").as_uri())
for _ in range(60):
    with ExitStack() as held:
        if kind != "new":
            held.enter_context(FileLock(folder / "report.lock", timeout=60, poll_interval=0.001))
        if kind != "old":
            held.enter_context(locks.lock("report").acquire(timeout=60))
        count = int((folder / "count").read_text())
        (folder / "count").write_text(str(count + 1))
locks.close()
"""
"""A program that counts in a file: "old" holds filelock's lock, "new" interlock's, "both" the two."""


@pytest.mark.parametrize("other", ["old", "new"])
def test_programs_with_both_locks_exclude_old_and_new(other: str, tmp_path: Path) -> None:
    (tmp_path / "count").write_text("0")
    kinds = ("both", other, "both", other)
    programs = [subprocess.Popen([sys.executable, "-c", COUNT, kind, str(tmp_path)]) for kind in kinds]
    assert [program.wait(120) for program in programs] == [0] * 4
    assert (tmp_path / "count").read_text() == "240"


@pytest.fixture(scope="module")
def client() -> Iterator[Redis]:
    """A client of a private Valkey."""
    need("valkey")
    with RedisServer() as server, closing(Redis.from_url(server.url)) as found:
        yield found


def held_by(lock: Any) -> bool:
    """Try to acquire a lock once, and release it; return whether another holds it."""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def pairs(client: Redis) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return for each library its lock and interlock's, which should exclude each other."""
    return {
        "redis-py": (lambda: client.lock("report", timeout=60), lambda: KeyLock(client, "report")),
        "ClientLock": (
            lambda: client.lock("report", timeout=60),
            lambda: client.lock("report", timeout=60, lock_class=ClientLock),
        ),
        "python-redis-lock": (
            lambda: redis_lock.Lock(client, "report", expire=60), lambda: KeyLock(client, "lock:report"),
        ),
    }  # fmt: skip


@pytest.mark.parametrize("library", ["redis-py", "ClientLock", "python-redis-lock"])
def test_a_key_lock_excludes_the_lock_of_each_library(library: str, client: Redis) -> None:
    theirs, ours = pairs(client)[library]
    for first, second in ((theirs, ours), (ours, theirs)):
        holder = first()
        assert holder.acquire(blocking=False)
        assert held_by(second())
        holder.release()
        assert not held_by(second())


@pytest.mark.parametrize("library", ["redis-py", "python-redis-lock"])
def test_a_key_and_a_line_do_not_exclude_each_other(library: str, client: Redis) -> None:
    theirs, _ = pairs(client)[library]
    with interlock.connect(client) as locks, locks.lock("report", timeout=0):
        assert not held_by(theirs())
