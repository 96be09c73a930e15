"""The folder of file://: each path is checked before it is used, and again during its use."""

import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock import LockLost, StoreError
from interlock.core.claims import SEPARATOR
from interlock.stores.files.slots import head_of
from interlock.testing.other_process import Remote
from interlock.testing.waiting import RENEWED, eventually
from tests.support.files_folder import complaints, connect

NAME = "nightly"
KEY = f"{SEPARATOR}{NAME}"
SECRET = b"root:x:0:0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a file store, which exists."""
    made = tmp_path / "locks"
    interlock.connect(f"file://{made}").close()
    return made


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """A file outside the folder, which must not change."""
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    yield path
    assert path.read_bytes() == SECRET
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.stat().st_nlink <= 2


def held(locks: interlock.Locks, name: str = NAME, ttl: float = 30.0) -> interlock.Grant:
    """Acquire at once."""
    grant = locks.lock(name, ttl=ttl).acquire(timeout=0)
    assert grant is not None
    return grant


def a_link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def a_link_to_nowhere(path: Path, secret: Path) -> None:
    path.symlink_to(secret.with_name("nowhere"))


def another_name_of_it(path: Path, secret: Path) -> None:
    os.link(secret, path)


def a_pipe(path: Path, secret: Path) -> None:
    os.mkfifo(path)


def a_folder(path: Path, secret: Path) -> None:
    path.mkdir()


def a_socket(path: Path, secret: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def three_gigabytes(path: Path, secret: Path) -> None:
    with open(path, "wb") as file:
        file.write(head_of(KEY))
        file.truncate(3 << 30)


TRAPS = [a_link, a_link_to_nowhere, another_name_of_it, a_pipe, a_folder, a_socket, three_gigabytes]


@pytest.fixture(params=TRAPS, ids=lambda trap: trap.__name__)
def trap(request: pytest.FixtureRequest) -> Callable[[Path, Path], None]:
    """Makes an object at a path that is not interlock's file."""
    made: Callable[[Path, Path], None] = request.param
    return made


def test_a_foreign_file_in_place_of_a_line_is_named_in_the_error(
    folder: Path, secret: Path, trap: Callable[[Path, Path], None]
) -> None:
    path = folder / "lines" / NAME
    trap(path, secret)
    before = os.lstat(path)
    os.utime(path, (0, 0), follow_symlinks=False)  # old enough to be deleted by a new connection
    with connect(folder) as locks:
        with pytest.raises(StoreError, match=f"{path}.*remove it"):
            locks.lock(NAME).acquire(timeout=0)
        with locks.lock("another"):
            assert [view.name for view in locks.claims()] == ["another"]
            assert locks.claims(NAME) == []
        assert f"lines/{NAME}" in complaints(locks)
    after = os.lstat(path)
    assert (after.st_ino, after.st_mode, after.st_size) == (before.st_ino, before.st_mode, before.st_size)
    assert not secret.with_name("nowhere").exists()


def test_a_foreign_file_in_place_of_the_marker_is_left_alone(
    folder: Path, secret: Path, trap: Callable[[Path, Path], None]
) -> None:
    path = folder / "interlock"
    path.unlink()
    trap(path, secret)
    with pytest.raises(StoreError, match=f"{path}.*remove it"):
        connect(folder)
    assert os.path.lexists(path)
    assert not secret.with_name("nowhere").exists()


def test_half_a_slot_at_the_end_of_a_line_is_cut_off(folder: Path) -> None:
    with connect(folder) as locks:
        grant = held(locks)
        with open(folder / "lines" / NAME, "ab") as line:
            line.write(b"half a slot")
        with locks.lock("free"):
            eventually(lambda: locks.lock(NAME).acquire(timeout=0) is None)
            eventually(lambda: (folder / "lines" / NAME).stat().st_size % 512 == 0)
        assert grant.release() is True


@pytest.mark.parametrize("room", ["lines", "alive"])
def test_a_folder_of_ours_that_is_a_link_is_refused(folder: Path, tmp_path: Path, room: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.rmtree(folder / room)
    (folder / room).symlink_to(elsewhere)
    with pytest.raises(StoreError, match=room):
        connect(folder)
    assert list(elsewhere.iterdir()) == []


def test_a_folder_replaced_by_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with connect(folder) as locks:
        (folder / "lines").rename(tmp_path / "old")
        (folder / "lines").symlink_to(elsewhere)
        with pytest.raises(StoreError):
            locks.lock(NAME).acquire(timeout=0)
        (folder / "lines").unlink()
    assert list(elsewhere.iterdir()) == []


def test_the_folder_itself_may_be_reached_through_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "current").symlink_to(folder)
    with connect(tmp_path / "current") as locks, connect(folder) as others:
        grant = held(locks)
        assert others.lock(NAME).acquire(timeout=0) is None
        assert grant.renew()


def test_a_liveness_folder_replaced_by_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("")
    os.mkfifo(elsewhere / "1-000000000000")
    with connect(folder) as locks:
        (folder / "alive").rename(tmp_path / "old")
        (folder / "alive").symlink_to(elsewhere)
        with pytest.raises(StoreError):
            connect(folder)
        with pytest.raises(StoreError):
            locks.lock(NAME).acquire(timeout=0)
        (folder / "alive").unlink()
        (tmp_path / "old").rename(folder / "alive")
    assert sorted(path.name for path in elsewhere.iterdir()) == ["1-000000000000", "precious"]


def test_refusals_leak_no_descriptors(folder: Path, tmp_path: Path) -> None:
    (folder / "lines" / "foreign").write_text("not a line")
    os.mkfifo(folder / "lines" / "pipe")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "interlock").write_text("not a marker")
    with connect(folder) as locks:

        def refused() -> int:
            for name in ("foreign", "pipe"):
                with pytest.raises(StoreError):
                    locks.lock(name).acquire(timeout=0)
            with pytest.raises(StoreError):
                connect(tmp_path / "other")
            locks.claims()
            return len(os.listdir("/proc/self/fd"))

        refused()
        before = refused()
        for _ in range(5):
            assert refused() <= before


# -- the folder is another one ------------------------------------------------------------------------------


def test_a_holder_in_a_moved_folder_loses_at_the_next_renewal(folder: Path, neighbour: Remote) -> None:
    with connect(folder) as locks:
        grant = held(locks)
        folder.rename(folder.with_name("old"))
        folder.mkdir(mode=0o700)
        with closing(Remote(f"file://{folder}")) as other:
            assert other.do(f"grant = locks.lock({NAME!r}).acquire(timeout=0)\nresult = grant is not None") is True
            assert grant.renew() is False
            with pytest.raises(LockLost):
                grant.check()
            assert locks.lock(NAME).acquire(timeout=0) is None  # one world again
            assert other.do("result = grant.release()") is True
            again = held(locks)
            assert other.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is None") is True
            assert again.renew()


def test_a_waiter_in_a_moved_folder_gets_the_lock_in_the_new_one(folder: Path, neighbour: Remote) -> None:
    neighbour.do(f"grant = locks.lock({NAME!r}).acquire()")
    with connect(folder) as locks:
        with closing(Remote(f"file://{folder}")) as waiter:
            waiter.start(f"grant = locks.lock({NAME!r}).acquire(timeout=15)\nresult = grant.renew()")
            eventually(lambda: len(locks.claims(NAME)) == 2)
            folder.rename(folder.with_name("old"))
            folder.mkdir(mode=0o700)
            assert waiter.answer() is True
            eventually(lambda: len(locks.claims(NAME)) == 1)


@pytest.mark.parametrize("replaced", [False, True])
def test_a_removed_marker_is_made_again_without_a_loss(folder: Path, replaced: bool) -> None:
    with connect(folder) as locks:
        grant = held(locks)
        text = (folder / "interlock").read_bytes()
        (folder / "interlock").unlink()
        if replaced:
            (folder / "interlock").write_bytes(text)
        assert grant.renew()
        assert (folder / "interlock").read_bytes() == text


def test_a_marker_of_another_machine_ends_the_hold(folder: Path) -> None:
    with connect(folder) as locks:
        grant = held(locks, ttl=RENEWED)
        marker = folder / "interlock"
        text = marker.read_bytes()
        marker.unlink()
        marker.write_bytes(text.replace(b"boot=", b"boot=f"))
        with pytest.raises(StoreError, match="another machine"):
            grant.renew()
        eventually(lambda: grant.lost, within=5)
        assert b"boot=f" in marker.read_bytes()


def test_waiters_whose_file_was_removed_stand_in_line_anew(folder: Path, neighbour: Remote) -> None:
    with connect(folder) as locks:
        grant = held(locks)
        neighbour.start(f"result = locks.lock({NAME!r}).acquire(timeout=15) is not None")
        eventually(lambda: len(locks.claims(NAME)) == 2)
        (folder / "lines" / NAME).unlink()
        assert grant.renew() is False
        assert neighbour.answer() is True
