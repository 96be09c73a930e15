"""interlock.compat.FileLock: a drop-in for filelock's, on the same lock of the operating system."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import filelock
import pytest

from interlock import LockTimeout, NotHeld
from interlock.compat import FileLock

HOLD = (
    "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); lock.acquire(); print('held', flush=True); input()"
)
COUNT = """
import sys
from pathlib import Path
if sys.argv[1] == "filelock":
    from filelock import FileLock
else:
    from interlock.compat import FileLock
file = Path(sys.argv[2])
for _ in range(100):
    with FileLock(sys.argv[2] + ".lock", timeout=60, poll_interval=0.001):
        file.write_text(str(int(file.read_text()) + 1))
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file to lock."""
    return str(tmp_path / "report.lock")


def held_by_filelock(path: str) -> "subprocess.Popen[str]":
    """Return a program that holds filelock's lock until it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_programs_with_filelock_and_with_this_lose_no_update(tmp_path: Path) -> None:
    file = tmp_path / "count"
    file.write_text("0")
    programs = [
        subprocess.Popen([sys.executable, "-c", COUNT, which, str(file)])
        for which in ("filelock", "ours")
        for _ in "ab"
    ]
    assert [program.wait(120) for program in programs] == [0] * 4
    assert file.read_text() == "400"


def test_what_filelock_holds_is_not_obtained_until_it_is_released(path: str) -> None:
    with held_by_filelock(path) as process:
        with pytest.raises(TimeoutError, match="was not obtained within 0 s"):
            FileLock(path).acquire(blocking=False)
        with pytest.raises(LockTimeout), FileLock(path, timeout=0.1):
            pytest.fail("two are in")
        process.send_signal(signal.SIGKILL)
        with FileLock(path, timeout=60) as lock:
            assert lock.is_locked


def test_what_this_holds_filelock_does_not_get(path: str) -> None:
    with FileLock(path), pytest.raises(filelock.Timeout):
        filelock.FileLock(path).acquire(timeout=0)
    with filelock.FileLock(path, timeout=0):
        pass


def test_it_is_counted(path: str) -> None:
    lock = FileLock(path)
    with lock, lock.acquire() as same:
        assert same is lock
        assert lock.lock_counter == 2
    assert not lock.is_locked
    with pytest.raises(NotHeld):
        lock.release()
    lock.acquire()
    lock.acquire()
    lock.release(force=True)
    assert not lock.is_locked


@pytest.mark.parametrize("local", [True, False])
def test_threads_hold_it_each_or_together(path: str, local: bool) -> None:
    lock = FileLock(path, thread_local=local)
    seen: list[bool] = []

    def look() -> None:
        try:
            lock.acquire(timeout=0).lock.release()
            seen.append(True)
        except LockTimeout:
            seen.append(False)

    with lock:
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [not local]


def test_another_thread_releases_what_threads_hold_together(path: str) -> None:
    lock = FileLock(path, thread_local=False)
    lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not lock.is_locked
    with FileLock(path, timeout=0):
        pass


def test_a_removed_file_is_not_locked_beside_a_new_one(path: str) -> None:
    with FileLock(path):
        os.unlink(path)
        with FileLock(path + ".other"):
            pass
    with FileLock(path, timeout=5), pytest.raises(filelock.Timeout):
        filelock.FileLock(path).acquire(timeout=0)


def test_a_forked_child_does_not_hold_it(path: str) -> None:
    lock = FileLock(path)
    with lock:
        child = os.fork()
        if child == 0:
            try:
                held = lock.is_locked
                lock.acquire(timeout=0)
            except LockTimeout:
                os._exit(int(held))
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        with pytest.raises(filelock.Timeout):
            filelock.FileLock(path).acquire(timeout=0)
