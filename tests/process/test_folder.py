"""The folder of file://: what does not belong there stops nobody, and what is over is cleaned away."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import interlock
from interlock.testing.remote import Remote
from interlock.testing.waiting import eventually

NAME = "book"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a file store; not made yet."""
    return tmp_path / "locks"


@pytest.fixture
def remote(folder: Path) -> Iterator[Remote]:
    """Another process on the folder."""
    other = Remote(f"file://{folder}")
    yield other
    other.close()


def connect(folder: Path) -> interlock.Locks:
    """Connect to the folder."""
    return interlock.connect(f"file://{folder}")


def use(locks: interlock.Locks, name: str = NAME) -> int:
    """Lock once, see that it excludes; return the fence."""
    with locks.lock(name, timeout=5) as grant:
        assert locks.lock(name).acquire(timeout=0) is None
        return grant.fence


def complaints(locks: interlock.Locks) -> str:
    """Return what the doctor has to complain about."""
    return " ".join(f"{check.name}: {check.detail}" for check in locks.doctor() if check.status != "ok")


DAMAGE = {
    "empty": b"",
    "text": b"hello\n",
    "zeros": bytes(4096),
    "noise": bytes(range(256)) * 40,
    "a head without an end": b"interlock line 1 head=",
    "one long line": b"x" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("room", ["using", "pending"])
def test_a_file_that_is_not_ours_stops_nobody(folder: Path, damage: bytes, room: str) -> None:
    with connect(folder):
        (folder / room / NAME).write_bytes(damage)
    with connect(folder) as locks:
        fence = use(locks)
        assert use(locks) > fence


@pytest.mark.parametrize("size", [1, 20, 50, 100, 127, 128, 129, 200, 255])
def test_a_truncated_line_stops_nobody_and_its_fence_does_not_go_back(folder: Path, size: int) -> None:
    with connect(folder) as locks:
        lock = locks.lock(NAME)
        grant = lock.acquire()
        assert grant is not None
        fence = grant.fence
        shutil.copy(folder / "using" / NAME, folder / "kept")
        grant.release()
    whole = (folder / "kept").read_bytes()
    (folder / "kept").unlink()
    (folder / "using" / NAME).write_bytes(whole[: min(size, len(whole) - 1)])
    with connect(folder) as locks:
        assert use(locks) > fence


def test_damage_in_the_middle_of_a_line_stops_nobody(folder: Path) -> None:
    with connect(folder) as locks:
        grant = locks.lock(NAME).acquire()
        assert grant is not None
        whole = (folder / "using" / NAME).read_bytes()
        grant.release()
    for at in range(0, len(whole), 16):
        (folder / "using" / NAME).write_bytes(whole[:at] + b"\xff" * 16 + whole[at + 16 :])
        with connect(folder) as locks:
            assert use(locks) > grant.fence, at


def test_the_doctor_reports_what_is_foreign_or_damaged(folder: Path) -> None:
    with connect(folder) as locks:
        assert "foreign" not in complaints(locks)
        (folder / "README.txt").write_text("who put this here?")
        (folder / "using" / "holiday.jpg").write_bytes(b"\xff\xd8\xff")
        (folder / "pending" / "nobody knows").write_bytes(b"?")
        (folder / "using" / "a folder").mkdir()
        told = complaints(locks)
        assert "README.txt" in told
        assert "holiday.jpg" in told
        assert "nobody knows" in told
        assert "a folder" in told
        use(locks)
        assert [view.name for view in locks.claims()] == []


def test_foreign_files_do_not_disturb_a_listing(folder: Path) -> None:
    with connect(folder) as locks:
        (folder / "using" / "holiday.jpg").write_bytes(os.urandom(1000))
        (folder / "using" / "empty").write_bytes(b"")
        (folder / "pending" / "noise").write_bytes(os.urandom(1000))
        (folder / "alive" / "who").write_bytes(b"?")
        with locks.lock(NAME):
            assert [view.name for view in locks.claims()] == [NAME]


def test_a_damaged_record_of_fences_stops_nobody(folder: Path) -> None:
    for damage in (b"", b"many\n", b"\xff" * 100):
        with connect(folder) as locks:
            fence = use(locks)
        (folder / "fences").write_bytes(damage)
        with connect(folder) as locks:
            assert use(locks) > fence


def test_names_used_once_leave_nothing_after_close(folder: Path) -> None:
    with connect(folder) as locks:
        for number in range(1500):
            locks.lock(f"once {number}").acquire().release()  # type: ignore[union-attr]
        assert len(list((folder / "using").iterdir())) < 600  # bounded while it goes on, too
    left = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    assert [path for path in left if path not in ("interlock", "fences")] == []
    assert list((folder / "alive").iterdir()) == []


def test_names_of_a_killed_process_are_swept_by_later_ones(folder: Path, remote: Remote) -> None:
    remote.do("for number in range(100): grant = locks.lock(f'once {number}').acquire()\nresult = grant.fence")
    remote.kill()
    assert len(list((folder / "using").iterdir())) == 100
    old = time.time() - 3600
    for path in (folder / "using").iterdir():
        os.utime(path, (old, old))
    for _ in range(20):
        connect(folder).close()
    assert list((folder / "using").iterdir()) == []
    assert list((folder / "pending").iterdir()) == []
    assert list((folder / "alive").iterdir()) == []


def test_a_line_in_use_is_not_swept(folder: Path, remote: Remote) -> None:
    remote.do(f"grant = locks.lock({NAME!r}).acquire()")
    os.utime(folder / "using" / NAME, (0, 0))
    for _ in range(5):
        connect(folder).close()
    with connect(folder) as locks:
        assert locks.lock(NAME).acquire(timeout=0) is None
    assert remote.do("result = grant.release()") is True


def test_a_crowd_that_came_and_went_leaves_a_small_line(folder: Path, remote: Remote) -> None:
    remote.do(
        "import threading\n"
        "def visit():\n"
        f"    with locks.semaphore({NAME!r}, 100): barrier.wait(20)\n"
        "barrier = threading.Barrier(100)\n"
        "crowd = [threading.Thread(target=visit) for _ in range(100)]\n"
        "for one in crowd: one.start()\n"
        "for one in crowd: one.join()\n"
        f"with locks.lock({NAME!r}): pass"
    )
    with connect(folder) as locks:
        use(locks)
        use(locks)
        assert (folder / "using" / NAME).stat().st_size < 8192


def test_fences_increase_after_the_folder_was_removed(folder: Path) -> None:
    fences = []
    for _ in range(3):
        with connect(folder) as locks:
            fences.append(use(locks))
        shutil.rmtree(folder)
    assert fences == sorted(set(fences))


def test_reading_all_files_of_the_folder_gives_no_lock_away(folder: Path, remote: Remote) -> None:
    remote.do(
        f"from pathlib import Path\ngrant = locks.lock({NAME!r}).acquire()\n"
        f"for path in Path({str(folder)!r}).rglob('*'):\n"
        "    if path.is_file(): path.read_bytes()\n"
        "other = interlock.connect(url); other.claims(); other.doctor(); other.close()"
    )
    with connect(folder) as locks:
        assert locks.lock(NAME).acquire(timeout=0) is None
    assert remote.do("result = grant.release()") is True


def test_a_second_connection_of_the_process_may_close_and_die(folder: Path, remote: Remote) -> None:
    remote.do(
        f"grant = locks.lock({NAME!r}).acquire()\n"
        f"other = interlock.connect(url); result = other.lock({NAME!r}).acquire(timeout=0)\n"
        "assert result is None\n"
        "other.lock('more').acquire()\n"
        "other.close(); del other"
    )
    with connect(folder) as locks:
        assert locks.lock(NAME).acquire(timeout=0) is None
        assert locks.lock("more").acquire(timeout=0) is not None


def test_holders_and_waiters_can_be_seen_with_ls_and_cat(folder: Path, remote: Remote) -> None:
    remote.do(f"grant = locks.lock({NAME!r}, label='shelf 3').acquire()")
    with connect(folder) as locks:
        remote_pid = str(remote.process.pid)
        assert [path.name for path in (folder / "using").iterdir()] == [NAME]
        text = (folder / "using" / NAME).read_text()
        assert "shelf 3" in text
        assert remote_pid in text
        waiter = Remote(f"file://{folder}")
        try:
            waiter.start(f"locks.lock({NAME!r}).acquire()")
            eventually(lambda: len(locks.claims(NAME)) == 2)
            assert str(waiter.process.pid) in (folder / "pending" / NAME).read_text()
        finally:
            waiter.close()
