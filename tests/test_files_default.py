"""The default folder: one for each user id, independent of the environment, and checked before it is used."""

import os
from pathlib import Path

import pytest

import interlock
from interlock import StoreError
from interlock.stores.files import _posix, runtime_folder

# The mounts of a service with PrivateTmp=yes, with /tmp as a tmpfs and without; see systemd.exec(5).
HOST = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n33 27 0:28 / /tmp rw,nosuid - tmpfs tmpfs rw\n"
PRIVATE_TMPFS = "91 27 0:28 /systemd-private-4f2a-app.service-Xb3/tmp /tmp rw - tmpfs tmpfs rw\n"
PRIVATE_DISK = "91 27 254:0 /tmp/systemd-private-4f2a-app.service-Xb3/tmp /tmp rw - ext4 /dev/vda rw\n"
PRIVATE_ELSEWHERE = "92 27 254:0 /var/tmp/systemd-private-4f2a-app.service-Xb3/tmp /var/tmp rw - ext4 /dev/vda rw\n"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder instead of /tmp."""
    monkeypatch.setattr(_posix, "SHARED", str(tmp_path))
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    return tmp_path


def test_the_default_folder_depends_on_the_user_id_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_RUNTIME_DIR", "TMPDIR", "TMP", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    assert runtime_folder() == f"/tmp/interlock-{os.geteuid()}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_it_is_made_for_its_user_alone_under_every_umask(shared: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with interlock.connect() as locks, locks.lock("x"):
            (made,) = shared.iterdir()
            assert made.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)
    with interlock.connect() as locks:  # it is there already
        assert locks.lock("x").acquire(timeout=0) is not None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_folder_that_others_may_write_is_refused(shared: Path, mode: int) -> None:
    Path(runtime_folder()).chmod(mode)
    with pytest.raises(StoreError, match=r"chmod 700 .*INTERLOCK_URL"):
        interlock.connect()


def test_a_symlink_to_the_users_own_folder_is_refused(shared: Path) -> None:
    (shared / "mine").mkdir(mode=0o700)
    (shared / f"interlock-{os.geteuid()}").symlink_to(shared / "mine")
    with pytest.raises(StoreError, match="is not a folder of this user"):
        interlock.connect()
    assert list((shared / "mine").iterdir()) == []


def test_a_file_in_its_place_is_refused(shared: Path) -> None:
    (shared / f"interlock-{os.geteuid()}").write_text("")
    with pytest.raises(StoreError, match="is not a folder of this user"):
        interlock.connect()


def test_a_folder_of_somebody_else_is_refused(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.geteuid() + 1
    (shared / f"interlock-{other}").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(StoreError, match="is not a folder of this user"):
        interlock.connect()


def test_a_machine_without_a_tmp_says_what_to_do(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_posix, "SHARED", str(shared / "gone"))
    with pytest.raises(StoreError, match="INTERLOCK_URL"):
        interlock.connect()


@pytest.mark.parametrize("mount", [PRIVATE_TMPFS, PRIVATE_DISK])
def test_a_service_with_a_tmp_of_its_own_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mount: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(HOST + mount)
    monkeypatch.setattr(_posix, "MOUNTS", mounts)
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    with pytest.raises(StoreError, match=r"private /tmp \(PrivateTmp=\).*INTERLOCK_URL"):
        interlock.connect()
    monkeypatch.setenv("INTERLOCK_URL", (tmp_path / "locks").as_uri())
    interlock.connect().close()


@pytest.mark.parametrize("text", [HOST, HOST + PRIVATE_ELSEWHERE, ""])
def test_the_tmp_of_the_machine_is_fine(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(text)
    monkeypatch.setattr(_posix, "MOUNTS", mounts)
    interlock.connect().close()
