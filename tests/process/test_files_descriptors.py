"""Files: a connection closes its descriptors in time, and never has more open than the process may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.stores.files import _posix
from interlock.stores.files.liveness import Liveness
from interlock.testing.other_process import Remote
from tests.support.files_folder import connect, descriptors, liveness_pipes_of

HERE = os.getpid()


def test_each_connection_closes_only_its_own_descriptors(folder: Path) -> None:
    before = descriptors()
    first = connect(folder)
    grant = first.lock("book").acquire()
    one = descriptors()
    many = [connect(folder) for _ in range(20)]
    for locks in many:
        assert locks.lock("book").acquire(timeout=0) is None
        locks.lock("shelf").acquire().release()  # type: ignore[union-attr]
    assert len(liveness_pipes_of(folder, HERE)) == 21
    for locks in many:
        locks.close()
    assert descriptors() == one
    assert grant.renew() is True
    assert grant.release() is True
    first.close()
    assert descriptors() <= before
    assert list((folder / "alive").iterdir()) == []


def test_a_folder_that_was_removed_is_not_made_again_to_close_it(folder: Path) -> None:
    with connect(folder) as locks:
        with locks.lock("book"):
            pass
        shutil.rmtree(folder)
    assert not folder.exists()


def test_a_folder_that_was_made_again_is_another_one(folder: Path) -> None:
    with connect(folder) as old:
        held = old.lock("book").acquire()
        folder.rename(folder.with_name("elsewhere"))
        with connect(folder) as new:
            assert new.lock("book").acquire(timeout=0) is not None
        assert held is not None


OPEN = """
import os
def opened():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # the one that listed them
    here = url.removeprefix("file://") + "/"
    return sorted(path.removeprefix(here).partition("/")[0] for path in found if path.startswith(here))
"""


def test_a_forked_child_has_nothing_of_its_parents_open(folder: Path, neighbour: Remote) -> None:
    with connect(folder) as locks:
        grant = locks.lock("shelf").acquire()
        assert grant is not None
        neighbour.do(OPEN)
        # It holds, it has waited at a pipe, and it has looked whether others live.
        told = neighbour.do(
            "held = locks.lock('book').acquire()\n"
            "assert locks.lock('shelf').acquire(timeout=0.1) is None\n"
            "reader, writer = os.pipe()\n"
            "before = opened()\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os.write(writer, repr(opened()).encode()); os._exit(0)\n"
            "os.waitpid(child, 0)\n"
            "result = [before, os.read(reader, 1000).decode(), held.renew()]"
        )
    assert told[0].count("alive") >= 3  # its liveness pipe, its pipe, and the liveness pipe of the other
    assert "lines" in told[0]
    assert told[1:] == ["[]", True]


def lit(folder: Path) -> Liveness:
    """Make a liveness pipe."""
    liveness = Liveness(folder / "alive")
    liveness.keep()
    return liveness


def test_a_liveness_pipe_has_its_name_only_when_it_is_locked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "alive").mkdir(parents=True)
    other = lit(folder)
    flock, seen = _posix.flock, []

    def looks_before(fd: int, how: int) -> None:
        if how & _posix.LOCK_EX:
            seen.append([name for name in os.listdir(folder / "alive") if name[0] != "." and name != other.token])
        flock(fd, how)
        if how & _posix.LOCK_EX:
            other.sweep()

    monkeypatch.setattr(_posix, "flock", looks_before)
    made = lit(folder)
    assert seen == [[]]
    assert other.is_alive(made.token)
    made.close()
    other.close()


STORM = """
import gc, logging, os, random, signal, sys, time, warnings
import interlock

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
url, kind, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGALRM, signal.default_int_handler)
strikes = 0

def names(locks, other, number):
    with locks.lock(f"a{number}", timeout=1):
        pass

def waits(locks, other, number):
    with other.lock("w", timeout=1):
        locks.lock("w").acquire(timeout=0.001)

def connections(locks, other, number):
    with interlock.connect(url) as own, own.lock(f"a{number % 9}", timeout=1):
        pass

work = {"names": names, "waits": waits, "connections": connections}[kind]
before = len(os.listdir("/proc/self/fd"))
with interlock.connect(url, ttl=1) as locks, interlock.connect(url, ttl=1) as other:
    began = time.perf_counter()
    for number in range(20):
        work(locks, other, -number)
    usual = (time.perf_counter() - began) / 20
    for number in range(rounds):
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, usual))
                work(locks, other, number)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            strikes += 1
        except interlock.LockError:  # what an interrupted round has left holds the lock for its lease
            pass
assert strikes > rounds / 20, strikes

def left():
    gc.collect()
    with interlock.connect(url):  # which closes what was dropped
        pass
    return len(os.listdir("/proc/self/fd")) - before

deadline = time.monotonic() + 60
while left() > allowed and time.monotonic() < deadline:  # threads that renew hold a dropped connection for a while
    time.sleep(0.5)
print(left())
"""


@pytest.mark.parametrize("kind", ["names", "waits", "connections"])
@pytest.mark.parametrize("store", ["file", "sqlite"])
def test_a_storm_of_interrupts_loses_no_descriptor(store: str, kind: str, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/locks" if store == "file" else f"sqlite:///{tmp_path}/locks.db"
    allowed = 3  # of 600 interrupts; without care every fifth loses one
    command = [sys.executable, "-c", f"allowed = {allowed}\n{STORM}", url, kind, "600"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) <= allowed
