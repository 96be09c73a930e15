"""Processes that share a folder of file://: what they must have in common, and limits of the machine."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.stores.files import machine
from interlock.testing.other_process import Remote, RemoteError
from interlock.testing.waiting import eventually
from tests.torture.runs import small_disk

NAME = "nightly"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a time namespace or mount a file system")

IN_A_TIME_NAMESPACE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x80) == 0, os.strerror(ctypes.get_errno())
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write("monotonic 1000 0")
child = os.fork()
if child == 0:
    os.execv(sys.argv[1], sys.argv[1:])
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.fixture
def ahead() -> Iterator[Remote]:
    """A process whose monotonic clock is ahead."""
    with closing(Remote(None, [sys.executable, "-c", IN_A_TIME_NAMESPACE])) as made:
        yield made
        made.end()


@as_root
def test_a_process_with_another_clock_does_not_get_in(tmp_path: Path, ahead: Remote) -> None:
    path = tmp_path / "locks"
    with interlock.connect(f"file://{path}") as locks:
        grant = locks.lock(NAME).acquire()
        with pytest.raises(RemoteError, match=r"StoreError.*time namespace"):
            ahead.do(f"locks = interlock.connect('file://{path}')")
        assert grant.renew()
        assert {check.status for check in locks.doctor()} == {"ok"}


@as_root
def test_who_was_first_has_the_folder_to_itself(tmp_path: Path, ahead: Remote) -> None:
    path = tmp_path / "locks"
    ahead.do(f"locks = interlock.connect('file://{path}')")
    ahead.do(f"grant = locks.lock({NAME!r}).acquire()")
    assert set(ahead.do("result = [check.status for check in locks.doctor()]")) == {"ok"}
    with pytest.raises(StoreError, match="time namespace"):
        interlock.connect(f"file://{path}")
    assert ahead.do("result = grant.renew()") is True
    ahead.do("locks.close()")
    with interlock.connect(f"file://{path}") as locks:  # no other process uses it now
        assert locks.lock(NAME).acquire(timeout=0) is not None


def test_every_call_at_the_limit_of_files_says_what_to_do(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/locks"
    with closing(Remote(url)) as other:
        other.do(
            "import os, resource, interlock.api._sync.locks, interlock.stores.files\n"
            "grant = locks.lock('held').acquire()\n"
            "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
            "used = max(map(int, os.listdir('/proc/self/fd')))\n"
            "def at_limit(call):\n"
            "    spare = []\n"
            "    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, hard))\n"
            "    try:\n"
            "        while True: spare.append(os.open('/', os.O_RDONLY))\n"
            "    except OSError: pass\n"
            "    try: call(); return 'nothing'\n"
            "    except interlock.StoreError as error: return str(error)\n"
            "    finally:\n"
            "        for fd in spare: os.close(fd)\n"
            "        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        )
        for call in (
            "locks.lock('new').acquire(timeout=0)",
            "locks.lock('an odd name').acquire(timeout=0)",
            "locks.lock('held').acquire(timeout=2)",
            "locks.claims()",
            "locks.claims('held')",
            "locks.evict('another')",  # 'new' may be open, since its claim is taken out in the background
            f"interlock.connect({url!r})",
        ):
            assert "ulimit -n" in other.do(f"result = at_limit(lambda: {call})"), call
        for _ in range(2):  # its module is not loaded yet; later it is
            told = other.do(
                "found = []\ntext = at_limit(lambda: found.extend(locks.doctor()))\n"
                "locks.doctor()\nresult = text + str(found)"
            )
            assert "ulimit -n" in told
        assert other.do("result = at_limit(grant.renew)") == "nothing"
        with closing(Remote(url)) as waiter:
            waiter.start("result = locks.lock('held').acquire(timeout=15) is not None")
            with interlock.connect(url) as locks:
                eventually(lambda: len(locks.claims("held")) == 2)
            assert other.do("result = at_limit(grant.renew)") == "nothing"
        assert other.do("result = at_limit(grant.release)") == "nothing"
        assert other.do("result = at_limit(locks.close)") == "nothing"


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A small file system, and a function that fills it."""
    path = tmp_path / "disk"

    def fill() -> None:
        with open(path / "filler", "wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while True:
                file.write(b"x" * 512)

    with small_disk(path, "64k"):
        yield path, fill


@as_root
def test_a_full_disk_is_said_and_nobody_gets_in_by_it(full_disk: tuple[Path, Callable[[], None]]) -> None:
    disk, fill = full_disk
    with interlock.connect(f"file://{disk}/locks") as locks:
        grant = locks.lock("held").acquire()
        fill()
        for call in (
            lambda: locks.lock(NAME).acquire(timeout=0),
            lambda: interlock.connect(f"file://{disk}/more"),
        ):
            with pytest.raises(StoreError, match=r"No space|room"):
                call()
        assert grant.renew()
        assert [view.name for view in locks.claims()] == ["held"]
        assert grant.release()
        (disk / "filler").unlink()
        for name in (NAME, "held"):
            again = locks.lock(name).acquire(timeout=0)
            assert again is not None
            assert locks.lock(name).acquire(timeout=0) is None


def test_a_limit_of_file_sizes_is_said(tmp_path: Path) -> None:
    with closing(Remote(f"file://{tmp_path}/locks")) as other:
        other.do("import resource, signal\nresource.setrlimit(resource.RLIMIT_FSIZE, (700, resource.RLIM_INFINITY))")
        with pytest.raises(RemoteError, match=r"StoreError.*ulimit -f|StoreError.*Free some space"):
            other.do(f"locks.lock({NAME!r}).acquire(timeout=0)")
        other.do("resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))")
        assert other.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is not None") is True


# -- file systems -------------------------------------------------------------------------------------------


def status_on(kind: str, path: Path, monkeypatch: pytest.MonkeyPatch, allow: str = "") -> str:
    """Return the result with a folder on that file system: refused, or the doctor's status."""
    monkeypatch.setattr(machine, "mount_of", lambda path: machine.Mount("/", "/", kind))
    try:
        locks = interlock.connect(f"file://{path}/locks" + (f"?allow={allow}" if allow else ""))
    except (StoreError, InvalidArgument):
        return "refused"
    with locks:
        return next(check.status for check in locks.doctor() if check.name == "file system")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        *(
            (kind, "ok")
            for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "fuse.fuse-overlayfs")
        ),
        *((kind, "refused") for kind in ("nfs4", "cifs", "9p", "fuse.sshfs", "glusterfs", "lustre")),
        *((kind, "refused") for kind in ("fuse.whatever", "fuseblk", "virtiofs", "vboxsf", "vmhgfs", "prl_fs")),
        *((kind, "warn") for kind in ("unknown", "exotic")),
    ],
)
def test_file_systems_are_used_refused_or_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, status: str
) -> None:
    assert status_on(kind, tmp_path, monkeypatch) == status


@pytest.mark.parametrize(
    ("kind", "allow", "status"),
    [
        ("virtiofs", "virtiofs", "warn"),
        ("fuse.rclone", "fuse.rclone", "warn"),
        ("fuse.rclone", "virtiofs", "refused"),
        ("vboxsf", "virtiofs", "refused"),
        ("nfs4", "nfs4", "refused"),
        ("ext4", "virtiofs", "ok"),
    ],
)
def test_what_the_user_vouches_for_is_used_and_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, allow: str, status: str
) -> None:
    assert status_on(kind, tmp_path, monkeypatch, allow) == status


def test_the_error_tells_how_to_allow_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "mount_of", lambda path: machine.Mount("/", "/", "virtiofs"))
    with pytest.raises(StoreError, match=r"file://.*\?allow=virtiofs"):
        interlock.connect(f"file://{tmp_path}/locks")
    interlock.connect(f"file://{tmp_path}/locks?allow=virtiofs").close()
