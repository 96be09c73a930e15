"""The shared folder: which ones are refused, and with what advice; what `doctor` finds; several users of a group."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files import _posix
from interlock.stores.share import ShareStore, lines
from interlock.stores.share.checks import race
from interlock.stores.share.folder import SharedFolder
from tests.docs.pages import ROOT
from tests.support.brief_share import Emulated, Failed, Forgetful


def acquired(store: ShareStore) -> bool:
    """Return True if a lock can be acquired and released."""
    with interlock.Locks(store) as locks, locks.lock("book", timeout=0) as grant:
        return grant.held


@pytest.mark.parametrize(
    "wrong",
    ["share://", "share:///", "share://server/export", "share:///mnt#x", "share:///mnt?mode=0770", "share:///a%00b"],
)
def test_a_url_without_an_absolute_folder_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidArgument, match=r"share:///"):
        interlock.connect(wrong)


def test_odd_characters_of_a_folder_are_escaped(tmp_path: Path) -> None:
    odd = tmp_path / "a b?#%ü"
    odd.mkdir()
    with interlock.connect(odd.as_uri().replace("file:", "share:")) as locks, locks.lock("x"):
        assert os.listdir(odd) == ["="]


def test_a_folder_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    missing = tmp_path / "mnt"
    with pytest.raises(StoreError, match=r"does not exist\. Mount its file system, or create the folder once"):
        acquired(ShareStore(str(missing)))
    assert not missing.exists()


def test_a_sticky_folder_is_refused_with_the_cure(folder: Path) -> None:
    folder.chmod(0o1777)
    with pytest.raises(StoreError, match=r"is sticky .* chmod 2770, and umask 007"):
        acquired(ShareStore(str(folder)))


@pytest.mark.parametrize("system", [Emulated(), Forgetful()], ids=["no links", "renames twice"])
def test_what_only_emulates_files_is_refused(folder: Path, system: Any) -> None:
    with pytest.raises(StoreError, match="only emulates a file system"):
        acquired(ShareStore(str(folder), system=system))
    assert os.listdir(folder) == []


def test_a_folder_is_checked_again_after_an_error(folder: Path) -> None:
    store = ShareStore(str(folder), system=Failed(2, 5))
    with interlock.Locks(store) as locks:
        with pytest.raises(StoreError):
            locks.lock("book").acquire(timeout=0)
        with locks.lock("book", timeout=0) as grant:
            assert grant.held


def test_a_folder_that_is_unmounted_is_not_taken_for_an_empty_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SETTLES", 0.5)
    with interlock.connect(f"share://{folder}") as locks:
        grant = locks.lock("book").acquire()
        moved = folder.rename(folder.with_name("elsewhere"))
        with pytest.raises(StoreError, match="mounted"):
            locks.lock("other").acquire(timeout=0)
        moved.rename(folder)
        assert grant.release() is True


def test_names_differ_on_file_systems_that_fold_them(folder: Path) -> None:
    names = ["Book", "book", "BOOK", "bo\u0308k", "b\u00f6k", "a/b", "..", "x" * 999, "x" * 998, "%41", "\n"]
    with interlock.connect(f"share://{folder}", namespace="Shop/1") as locks:
        grants = [locks.lock(name).acquire(timeout=0) for name in names]
        assert all(grants)
        assert {view.name for view in locks.claims()} == set(names)
        assert locks.namespaces() == ["Shop/1"]
    found = [each.name for space in folder.iterdir() for each in space.iterdir()]
    assert len(found) == len(set(map(str.lower, found))) == len(names)
    assert max(map(len, found)) <= 140
    assert all(name.isascii() for name in found)


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: only root can act for two users")
def test_two_users_of_a_group_share_locks_with_any_umask(request: pytest.FixtureRequest) -> None:
    above = Path(mkdtemp())  # other users can't enter the folder of pytest
    request.addfinalizer(partial(shutil.rmtree, above))
    above.chmod(0o755)
    folder = above / "locks"
    folder.mkdir()
    os.chown(folder, -1, 4711)
    folder.chmod(0o2770)
    program = (
        "import os, sys, interlock\n"
        "from interlock.stores.share import checks, lines\n"
        "interlock.connect('memory://').lock('x').acquire().release()\n"
        "os.setgroups([]); os.setgid(4711); os.setuid(int(sys.argv[1])); os.umask(0o022)\n"
        "with interlock.connect(sys.argv[2]) as locks:\n"
        "    for _ in range(3):\n"
        "        with locks.lock('book', timeout=20) as grant: print(grant.fence, flush=True)\n"
    )
    fences = []
    for user in ("5001", "5002", "5001"):
        done = subprocess.run(
            [sys.executable, "-c", program, user, f"share://{folder}"], capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stderr
        fences += map(int, done.stdout.split())
    assert fences == sorted(set(fences))
    assert len(fences) == 9


def test_files_name_the_shared_folder_on_a_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / {tmp_path} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(_posix, "MOUNTS", mounts)
    with pytest.raises(StoreError, match="such as share:///"):
        interlock.connect(f"file://{tmp_path}/locks")


def doctor(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "interlock", "doctor", "--json", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_doctor_tells_mount_caches_clock_and_races(url: str) -> None:
    done = doctor("--store", url)
    found = {each["name"]: each for each in json.loads(done.stdout)["checks"]}
    assert (done.returncode, {each["status"] for each in found.values()}) == (0, {"ok"})
    assert {"mount", "caches", "clock", "permissions", "race", "round trip"} <= set(found)
    assert "100 rounds" in found["race"]["detail"]
    assert "one winner in 100" in found["race"]["detail"]


def test_doctor_races_as_long_as_asked(url: str) -> None:
    done = doctor("--store", url, "--race", "--clients", "8", "--rounds", "20")
    assert (done.returncode, "one winner in 20" in done.stdout) == (0, True)


def test_doctor_fails_where_a_file_is_renamed_twice(folder: Path) -> None:
    found = race(SharedFolder(str(folder), Forgetful(after_probe=True)), 4, 10)
    assert found.status == "fail"
    assert "Do not keep locks there" in found.detail


def test_doctor_warns_of_a_mount_that_was_not_tried(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 1 0:1 / {folder} rw - nfs4 server:/export rw\n")
    monkeypatch.setattr(_posix, "MOUNTS", mounts)
    folder.chmod(0o2777)
    with interlock.connect(f"share://{folder}") as locks:
        found = {check.name: (check.status, check.detail) for check in locks.doctor()}
    assert found["mount"][0] == found["permissions"][0] == "warn"
    assert "nfs4" in found["mount"][1]
    assert "read from the server" in found["caches"][1]
