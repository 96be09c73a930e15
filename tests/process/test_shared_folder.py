"""A folder of file:// that several users share, whatever their umasks; and one that they do not."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.testing.other_process import Remote, RemoteError
from interlock.testing.waiting import eventually

NAME = "nightly"
ALICE, BOB, GROUP = 54321, 54322, 54320
UMASKS = [0o077, 0o002]
IMPORTS = (
    "import os, ctypes, json, datetime, hashlib, unicodedata, encodings.idna\n"
    "import interlock.stores.files.checks, interlock.stores.files._sync.queue\n"
    "import interlock.api._sync.locks, interlock.runtime.log\n"
    "import interlock.stores.files._async.queue, interlock.api._async.locks\n"
)

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own can't be."""
    path = Path(tempfile.mkdtemp(prefix="interlock-shared-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def readable() -> Iterator[list[str]]:
    """Words before a command, with which every user can import interlock: a checkout can be below a closed home."""
    with tempfile.TemporaryDirectory(prefix="interlock-copy-") as path:
        os.chmod(path, 0o755)
        shutil.copytree(Path(interlock.__file__).parent, Path(path) / "interlock")
        yield ["env", f"PYTHONPATH={path}"]


@pytest.fixture
def user(readable: list[str]) -> Iterator[Callable[..., Remote]]:
    """Starts a process as a user, connected to a folder."""
    with ExitStack() as ends:

        def start(
            folder: Path, uid: int, umask: int = 0o022, query: str = "", groups: tuple[int, ...] = ()
        ) -> Remote:
            other = ends.enter_context(closing(Remote(None, readable)))
            other.do(
                f"{IMPORTS}"
                f"os.setgroups({list(groups)})\n"
                f"os.setresgid({uid}, {uid}, {uid})\nos.setresuid({uid}, {uid}, {uid})\n"
                f"os.umask({umask})\nlocks = interlock.connect('file://{folder}{query}')"
            )
            return other

        yield start


def shared(home: Path, mode: int, group: int = 0) -> Path:
    """Make a folder like an administrator."""
    folder = home / "locks"
    folder.mkdir()
    os.chown(folder, ALICE, group)
    folder.chmod(mode)
    return folder


@as_root
@pytest.mark.parametrize(
    ("mode", "umask"), [(0o777, 0o022), (0o777, 0o077), (0o1777, 0o077), (0o2770, 0o002), (0o770, 0o077)], ids=oct
)
def test_two_users_exclude_and_wake_each_other(
    home: Path, user: Callable[..., Remote], mode: int, umask: int
) -> None:
    folder = shared(home, mode, GROUP)
    alice = user(folder, ALICE, umask, groups=(GROUP,))
    bob = user(folder, BOB, umask, groups=(GROUP,))
    for first, second in ((alice, bob), (bob, alice)):
        first.do(f"grant = locks.lock({NAME!r}).acquire(timeout=5)")
        second.start(f"other = locks.lock({NAME!r}).acquire(timeout=15)\nresult = other.fence")
        eventually(lambda first=first: first.do(f"result = len(locks.claims({NAME!r}))") == 2)  # type: ignore[misc]
        fence = first.do("grant.release()\nresult = grant.fence")
        assert second.answer() > fence
        assert second.do("result = other.renew()") is True
        assert second.do("result = other.release()") is True
    told = [check for check in alice.do("result = [list(check) for check in locks.doctor()]") if check[1] == "fail"]
    assert told == []


@as_root
@pytest.mark.parametrize(("mode", "umask"), [(0o777, 0o077), (0o1777, 0o022)], ids=oct)
def test_a_clean_up_by_another_user_leaves_the_name_usable(
    home: Path, user: Callable[..., Remote], mode: int, umask: int
) -> None:
    folder = shared(home, mode)
    alice = user(folder, BOB, umask)
    alice.do(f"grant = locks.lock({NAME!r}).acquire()\nfence = grant.fence\ngrant.release()")
    alice.kill()  # its file stays
    another = BOB + 1
    for _ in range(2):
        other = user(folder, another, umask)
        other.do(f"locks.lock({NAME!r}).acquire().release()\nlocks.close()")
    third = user(folder, BOB, umask)
    assert third.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is not None") is True
    third.do("locks.close()")


@as_root
@pytest.mark.parametrize("mode", [0o755, 0o711, 0o700], ids=oct)
def test_users_with_read_access_only_can_not_open_the_files(
    home: Path, user: Callable[..., Remote], mode: int
) -> None:
    folder = shared(home, mode)
    alice = user(folder, ALICE, 0o000)
    alice.do(f"grant = locks.lock({NAME!r}).acquire()")
    for path in [*folder.rglob("*")]:
        found = stat.S_IMODE(path.stat().st_mode)
        assert found == (mode if path.is_dir() else 0o600), path
    with pytest.raises(RemoteError, match="StoreError"):
        user(folder, BOB)


@as_root
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_a_folder_is_made_for_a_group_if_the_url_says_so(home: Path, user: Callable[..., Remote], umask: int) -> None:
    home.chmod(0o2777)
    os.chown(home, 0, GROUP)
    folder = home / "locks"
    alice = user(folder, ALICE, umask, "?mode=0770", groups=(GROUP,))
    bob = user(folder, BOB, umask, "?mode=0770", groups=(GROUP,))
    assert stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o770
    alice.do(f"grant = locks.lock({NAME!r}).acquire(timeout=0)")
    assert bob.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is None") is True


@as_root
@pytest.mark.parametrize("umask", UMASKS, ids=oct)
def test_root_in_a_users_folder_locks_its_owner_not_out(home: Path, user: Callable[..., Remote], umask: int) -> None:
    folder = shared(home, 0o700, GROUP)
    root = user(folder, 0, umask)
    root.do(f"grant = locks.lock({NAME!r}).acquire()")
    alice = user(folder, ALICE)
    assert alice.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is None") is True
    root.kill()  # alice must see that its liveness pipe is out
    assert alice.do(f"grant = locks.lock({NAME!r}).acquire(timeout=5)\nresult = grant is not None") is True
    for path in folder.rglob("*"):
        assert path.stat().st_uid == ALICE, path


@as_root
def test_a_file_of_a_stranger_in_a_private_folder_is_not_trusted(home: Path) -> None:
    folder = home / "locks"
    with interlock.connect(f"file://{folder}") as locks:
        path = folder / "lines" / NAME
        path.write_bytes(b"")
        os.chown(path, BOB, BOB)
        with pytest.raises(StoreError, match=f"belongs to user {BOB}"):
            locks.lock(NAME).acquire(timeout=0)


@as_root
def test_another_users_link_does_not_expose_roots_files(home: Path, user: Callable[..., Remote]) -> None:
    folder = shared(home, 0o770, GROUP)
    secret = home / "shadow"
    secret.write_bytes(b"root:secret\n")
    secret.chmod(0o600)
    bob = user(folder, BOB, groups=(GROUP,))
    bob.do(f"os.symlink('{secret}', '{folder}/lines/nightly')")
    with interlock.connect(f"file://{folder}") as locks:
        with pytest.raises(StoreError, match="symbolic link"):
            locks.lock(NAME).acquire(timeout=5)
        assert any("lines/nightly" in check.detail for check in locks.doctor())
    assert secret.read_bytes() == b"root:secret\n"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600


@as_root
def test_roots_file_moved_in_by_another_user_stays_roots(home: Path, user: Callable[..., Remote]) -> None:
    folder = shared(home, 0o777)
    user(folder, ALICE)
    moved = folder / "lines" / "book"
    moved.write_bytes(b"root:secret\n")
    moved.chmod(0o600)
    with pytest.raises(RemoteError, match="was not written by interlock"):
        user(folder, 0).do("locks.lock('book').acquire()")
    found = moved.stat()
    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)
    assert moved.read_bytes() == b"root:secret\n"


@as_root
def test_the_error_for_a_refused_user_names_the_chmod(home: Path, user: Callable[..., Remote]) -> None:
    folder = shared(home, 0o770, GROUP)
    alice = user(folder, ALICE, groups=(GROUP,))
    alice.do(f"locks.lock({NAME!r}).acquire().release()")
    (folder / "lines" / NAME).chmod(0o600)
    bob = user(folder, BOB, groups=(GROUP,))
    with pytest.raises(RemoteError, match=f"lines/{NAME}.*chmod"):
        bob.do(f"locks.lock({NAME!r}).acquire(timeout=0)")
    bob.close()
    (folder / "lines").chmod(0o700)
    with pytest.raises(RemoteError, match=f"{folder}/lines.*chmod"):
        user(folder, BOB, groups=(GROUP,))


@pytest.mark.parametrize("umask", [0o000, *UMASKS], ids=oct)
def test_a_folder_that_interlock_makes_is_for_its_user_alone(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = tmp_path / "locks"
        with interlock.connect(f"file://{folder}") as locks, locks.lock(NAME):
            assert locks.lock(NAME).acquire(timeout=0.01) is None
            paths = [folder, *folder.rglob("*")]
            assert {"interlock", "lines", "alive", NAME} <= {path.name for path in paths}
            for path in paths:
                assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", ["0700", "0770", "770", "2770", "0777", "1777"])
def test_a_mode_in_the_url_is_that_of_the_folder(tmp_path: Path, mode: str) -> None:
    folder = tmp_path / "locks"
    with interlock.connect(f"file://{folder}?mode={mode}") as locks, locks.lock(NAME):
        for path in (folder, folder / "lines"):
            assert stat.S_IMODE(path.stat().st_mode) == int(mode, 8)
        wanted = {"0": 0o600, "7": 0o660}[mode[-2]] | (0o006 if mode[-1] == "7" else 0)
        for path in folder.rglob("*"):
            assert path.is_dir() or stat.S_IMODE(path.stat().st_mode) == wanted


def test_a_folder_of_another_mode_than_the_url_says_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "locks"
    interlock.connect(f"file://{folder}").close()
    with pytest.raises(StoreError, match="has mode 700, but the URL requires 770"):
        interlock.connect(f"file://{folder}?mode=0770")
    interlock.connect(f"file://{folder}?mode=0700").close()


@pytest.mark.parametrize(
    "query",
    [
        "mode=",
        "mode=750",
        "mode=0o770",
        "mode=4770",
        "mode=660",
        "mode=0770&mode=0770",
        "mode=+770",
        "allow=",
        "allow=nfs4",
        "allow=9p",
        "allow=ext4",
        "allow=fuse.sshfs",
        "ttl=5",
        "Mode=0770",
        "x",
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path: Path, query: str) -> None:
    with pytest.raises(InvalidArgument):
        interlock.connect(f"file://{tmp_path}/locks?{query}")
    assert not (tmp_path / "locks").exists()


ONCE = "result = locks.once('report', keep={keep}).run(lambda: [runs.append(1), {name!r}][1])"


@as_root
@pytest.mark.parametrize("mode", [0o1777, 0o777], ids=oct)
def test_users_of_a_folder_record_runs_one_after_the_other(
    home: Path, user: Callable[..., Remote], mode: int
) -> None:
    folder = shared(home, mode)
    alice, bob = user(folder, ALICE, 0o077), user(folder, BOB, 0o077)
    for each in (alice, bob):
        each.do("runs = []")
    for name, first, second in (("a", alice, bob), ("another and longer one", bob, alice), ("a", alice, bob)):
        assert first.do(ONCE.format(keep=60, name=name)) == name
        assert second.do(ONCE.format(keep=60, name="no")) == name
        assert second.do("locks.forget('report')\nresult = locks.claims()") == []
    assert (alice.do("result = len(runs)"), bob.do("result = len(runs)")) == (2, 1)


@as_root
def test_a_record_is_written_into_no_file_with_another_name(home: Path, user: Callable[..., Remote]) -> None:
    folder = shared(home, 0o1777)
    alice = user(folder, ALICE)
    assert alice.do(f"runs = []\n{ONCE.format(keep=60, name='a')}") == "a"
    (record,) = (folder / "kept").iterdir()
    os.link(record, folder / "another")
    before = record.read_bytes()
    with pytest.raises(RemoteError, match="hard link"):
        user(folder, BOB).do(f"runs = []\nlocks.forget('report')\n{ONCE.format(keep=60, name='b')}")
    assert record.read_bytes() == before


CONTAINER = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(4, 1)  # PR_SET_DUMPABLE, which a change of the user has taken away
result = libc.unshare(0x10000000) == 0  # CLONE_NEWUSER
if result:
    for name, text in (("setgroups", "deny"), ("uid_map", "0 {uid} 1"), ("gid_map", "0 {uid} 1")):
        with open(f"/proc/self/{{name}}", "w") as file:
            file.write(text)
"""


@as_root
@pytest.mark.parametrize("mode", [0o777, 0o2777, 0o1777], ids=oct)
def test_root_of_a_rootless_container_locks_in_a_host_folder(
    home: Path, user: Callable[..., Remote], mode: int
) -> None:
    folder = shared(home, mode, GROUP)
    inside, outside = user(folder, BOB), user(folder, ALICE)
    if not inside.do(CONTAINER.format(uid=BOB)):
        pytest.skip("no user namespaces on this system")
    inside.do(f"locks = interlock.connect('file://{folder}')\ngrant = locks.lock({NAME!r}).acquire(timeout=5)")
    assert inside.do("result = os.getuid()") == 0
    assert outside.do(f"result = locks.lock({NAME!r}).acquire(timeout=0) is None") is True
    outside.start(f"result = locks.lock({NAME!r}).acquire(timeout=15) is not None")
    eventually(lambda: inside.do(f"result = len(locks.claims({NAME!r}))") == 2)
    inside.do("grant.release()")
    assert outside.answer() is True
