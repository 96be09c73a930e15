"""The folder of file://: foreign files disturb no lock, and files that are no longer needed are deleted."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock import StoreError
from interlock.stores.files._sync import queue
from interlock.testing.other_process import Remote
from interlock.testing.waiting import eventually
from tests.support.files_folder import complaints, connect

NAME = "book"


def use(locks: interlock.Locks, name: str = NAME) -> int:
    """Lock once, and check that it excludes; return the fence."""
    with locks.lock(name, timeout=5) as grant:
        assert locks.lock(name).acquire(timeout=0) is None
        return grant.fence


DAMAGE = {
    "empty": b"",
    "text": b"hello\n",
    "zeros": bytes(4096),
    "noise": bytes(range(256)) * 40,
    "a head without an end": b"interlock line 2 head=",
    "one long line": b"x" * 100_000,
}


@pytest.mark.parametrize("what", ["empty", "a head without an end"])
def test_a_file_that_was_just_begun_stops_nobody(folder: Path, what: str) -> None:
    with connect(folder):
        (folder / "lines" / NAME).write_bytes(DAMAGE[what])
    with connect(folder) as locks:
        fence = use(locks)
        assert use(locks) > fence


@pytest.mark.parametrize("what", ["text", "zeros", "noise", "one long line"])
def test_a_file_that_is_not_ours_is_named_and_not_touched(folder: Path, what: str) -> None:
    with connect(folder) as locks:
        path = folder / "lines" / NAME
        path.write_bytes(DAMAGE[what])
        path.chmod(0o644)
        with pytest.raises(StoreError, match=f"{path}.*remove it"), locks.lock(NAME):
            pass
        assert use(locks, "another name")
        assert f"lines/{NAME}" in complaints(locks)
        assert locks.claims() == []
    assert path.read_bytes() == DAMAGE[what]
    path.unlink()
    with connect(folder) as locks:
        assert use(locks)


@pytest.mark.parametrize("size", [1, 20, 50, 100, 127, 128, 129, 200, 255])
def test_a_truncated_line_blocks_nobody_and_keeps_its_fence(folder: Path, size: int) -> None:
    with connect(folder) as locks:
        lock = locks.lock(NAME)
        grant = lock.acquire()
        fence = grant.fence
        shutil.copy(folder / "lines" / NAME, folder / "kept")
        grant.release()
    whole = (folder / "kept").read_bytes()
    (folder / "kept").unlink()
    (folder / "lines" / NAME).write_bytes(whole[: min(size, len(whole) - 1)])
    with connect(folder) as locks:
        assert use(locks) > fence


def test_damage_in_the_middle_of_a_line_stops_nobody(folder: Path) -> None:
    with connect(folder) as locks:
        grant = locks.lock(NAME).acquire()
        whole = (folder / "lines" / NAME).read_bytes()
        grant.release()
    for at in range(32, len(whole), 16):
        (folder / "lines" / NAME).write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        with connect(folder) as locks:
            assert use(locks) > grant.fence, at


def test_foreign_files_do_not_disturb_a_listing(folder: Path) -> None:
    with connect(folder) as locks:
        (folder / "lines" / "holiday.jpg").write_bytes(os.urandom(1000))
        (folder / "lines" / "empty").write_bytes(b"")
        (folder / "alive" / "who").write_bytes(b"?")
        with locks.lock(NAME):
            assert [view.name for view in locks.claims()] == [NAME]


def test_names_used_once_leave_nothing_after_close(folder: Path) -> None:
    with connect(folder) as locks:
        for number in range(800):
            locks.lock(f"once {number}").acquire().release()  # type: ignore[union-attr]
        assert len(list((folder / "lines").iterdir())) < 600  # bounded while it goes on, too
    left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in left if path != "interlock"] == []
    assert list((folder / "alive").iterdir()) == []


def test_names_of_a_killed_process_are_swept_by_later_ones(folder: Path, neighbour: Remote) -> None:
    neighbour.do("for number in range(100): grant = locks.lock(f'once {number}').acquire()\nresult = grant.fence")
    neighbour.kill()
    assert len(list((folder / "lines").iterdir())) == 100
    old = time.time() - 3600
    for path in (folder / "lines").iterdir():
        os.utime(path, (old, old))
    for _ in range(20):
        connect(folder).close()
    assert list((folder / "lines").iterdir()) == []
    assert list((folder / "alive").iterdir()) == []


@pytest.mark.parametrize("compiled", [True, False])
def test_fences_increase_though_the_clock_was_set_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool
) -> None:
    if not compiled:
        monkeypatch.setattr(queue, "native", None)
    with connect(folder) as locks:
        grant = locks.lock(NAME).acquire()
        path, ahead = folder / "lines" / NAME, grant.fence + 10**14  # as if the clock had gone so far then
        path.write_bytes(path.read_bytes().replace(b"=%016d" % grant.fence, b"=%016d" % ahead))
        grant.release()
        fences = [use(locks)]
        with locks.lock(NAME) as held, ThreadPoolExecutor() as pool:
            fences.append(held.fence)
            waiting = pool.submit(use, locks)
            eventually(lambda: len(locks.claims(NAME)) == 2)
            held.release()
            fences.append(waiting.result(20))
    with connect(folder) as locks:  # its file stays as long as the clock is behind
        fences.append(use(locks))
    assert fences == [ahead + each for each in (1, 2, 3, 4)]


def test_a_line_that_somebody_waits_in_is_not_swept(folder: Path, neighbour: Remote) -> None:
    with closing(Remote(f"file://{folder}")) as waiter:
        neighbour.do(f"grant = locks.lock({NAME!r}).acquire()")
        with connect(folder) as locks:
            waiter.start(f"grant = locks.lock({NAME!r}).acquire(); result = grant.fence")
            eventually(lambda: len(locks.claims(NAME)) == 2)
            os.kill(waiter.process.pid, signal.SIGSTOP)  # so that it does not take over from the dead at once
            neighbour.kill()
            os.utime(folder / "lines" / NAME, (0, 0))
            connect(folder).close()
            assert (folder / "lines" / NAME).exists()
            os.kill(waiter.process.pid, signal.SIGCONT)
            assert waiter.answer() > 0
            (view,) = locks.claims(NAME)
            assert view.pid == waiter.process.pid


def test_fences_increase_after_the_folder_was_removed(folder: Path) -> None:
    fences = []
    for _ in range(3):
        with connect(folder) as locks:
            fences.append(use(locks))
        shutil.rmtree(folder)
    assert fences == sorted(set(fences))


def test_holders_and_waiters_can_be_seen_with_ls_and_cat(folder: Path, neighbour: Remote) -> None:
    neighbour.do(f"grant = locks.lock({NAME!r}, label='shelf 3').acquire()")
    with connect(folder) as locks:
        remote_pid = str(neighbour.process.pid)
        assert [path.name for path in (folder / "lines").iterdir()] == [NAME]
        text = (folder / "lines" / NAME).read_text()
        assert "shelf 3" in text
        assert remote_pid in text
        with closing(Remote(f"file://{folder}")) as waiter:
            waiter.start(f"locks.lock({NAME!r}).acquire()")
            eventually(lambda: len(locks.claims(NAME)) == 2)
            assert str(waiter.process.pid) in (folder / "lines" / NAME).read_text()


def test_processes_of_all_locales_lock_the_same_file(folder: Path) -> None:
    program = f"""
import interlock, sys
lock = interlock.connect({folder.as_uri()!r}).lock("\\u56fe\\u4e66")
print(lock.acquire(blocking=False) is not None)
"""
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with interlock.connect(folder.as_uri()) as locks:
        for held, answer in ((True, "False\n"), (False, "True\n")):
            grant = locks.lock("图书").acquire() if held else None
            command = [sys.executable, "-W", "ignore", "-c", program]
            environment = {**os.environ, **plain}
            ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
            assert ran.stdout == answer
            if grant is not None:
                grant.release()
