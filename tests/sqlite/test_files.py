"""The store's files: their names, their owners, foreign files in their place, and a restart of the machine."""

import asyncio
import os
import socket
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
from interlock.api.connect import open_store
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.files import machine
from interlock.testing.other_process import Remote, RemoteError
from interlock.testing.waiting import eventually, moment, since, throughout

NOBODY = 65534


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "memory://"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite:////tmp/x?mode=memory", "memory://"),
        ("sqlite:///relative.db", "four slashes"),
        ("sqlite://host/x", "this machine"),
        ("sqlite:////tmp/", "Name a file"),
        ("sqlite:////tmp/a%00b", "Name a file"),
        ("sqlite:////tmp/x?allow=nfs", "this machine alone"),
        ("sqlite:////tmp/x?synchronous=off", "no option"),
        ("sqlite:////tmp/x?allow=virtiofs&allow=virtiofs", "one value"),
    ],
)
@pytest.mark.parametrize("connect", [interlock.connect, interlock.aconnect])
def test_a_url_that_names_no_file_is_refused(url: str, said: str, connect: Any) -> None:
    with pytest.raises(InvalidArgument, match=said):
        connect(url)


def _hard_link(path: str) -> None:
    open(path + ".other", "w").close()
    os.link(path + ".other", path)


def _text(path: str) -> None:
    Path(path).write_text("I am no database, and longer than its header: " + "x" * 5000)


def _foreign(path: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("CREATE TABLE books (name)")


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, _hard_link, _text, _foreign])
def test_what_is_no_file_of_locks_is_refused_and_left_alone(
    url: str, folder: Path, make: Callable[[str], None]
) -> None:
    path = folder / "locks.db"
    make(str(path))
    before = os.lstat(path)
    with interlock.connect(url) as locks:
        with pytest.raises(StoreError, match=r"not a file|has a second name|not a SQLite database|another program"):
            locks.lock("a").acquire()
    after = os.lstat(path)
    assert (before.st_ino, before.st_size, before.st_mode) == (after.st_ino, after.st_size, after.st_mode)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with interlock.connect(f"sqlite:///{tmp_path}/missing/locks.db") as locks:
        with pytest.raises(StoreError, match="Create the folder"):
            locks.lock("a").acquire()


# -- boots -------------------------------------------------------------------------------------------------


def restarted(folder: Path) -> None:
    """Simulate a restart of the machine: another boot."""
    with closing(sqlite3.connect(folder / "locks.db")) as kept, kept:
        kept.execute("UPDATE boot SET id = 'the one before'")


def test_claims_before_a_restart_are_void_and_fences_increase(
    url: str, folder: Path, claims: Callable[[], str]
) -> None:
    before = claims()
    with pytest.raises(StoreError, match="is closed"), interlock.connect(url) as locks:  # as its process has ended
        locks.lock("a").acquire()
        later = time.time() + 3600  # the clock was set back by an hour since
        fence = later * 1_000_000
        os.utime(before, (later, later))
        locks._client.state().queue.close()  # as if its process had ended
        restarted(folder)
        with interlock.connect(url) as others:
            grant = others.lock("a").acquire(timeout=0)
            assert grant.fence > fence
            assert claims() != before
            assert not os.path.exists(before)


def test_the_record_of_a_completed_run_outlives_a_restart(url: str, folder: Path) -> None:
    spec = LockSpec("\0backup", once=True)
    queue: Any = open_store(url).queue()
    queue.enter(Claim("1" * 32, spec), None, False, False)
    assert queue.leave(Claim("1" * 32, spec), 100.0) is True
    queue.close()
    restarted(folder)
    queue = open_store(url).queue()
    assert queue.enter(Claim("2" * 32, spec), None, False, False).state == "done"
    assert queue.enter(Claim("3" * 32, spec._replace(once=False)), None, False, False).state == "using"
    queue.close()


def test_an_open_file_is_not_replaced_after_a_boot_id_change(
    url: str, folder: Path, locks: Any, remote: Callable[[], Remote]
) -> None:
    with locks.lock("a") as grant:
        restarted(folder)  # as a container on the same kernel sees it, after the clock was set
        assert remote().do("result = locks.lock('a').acquire(timeout=0) is None")
        assert grant.renew() is not False


def test_another_time_namespace_is_refused(url: str, folder: Path, claims: Callable[[], str]) -> None:
    claims()
    with closing(sqlite3.connect(folder / "locks.db")) as kept, kept:
        kept.execute("UPDATE boot SET clock = '7'")
    with interlock.connect(url) as locks, pytest.raises(StoreError, match="time namespace"):
        locks.lock("a").acquire()


# -- users -------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Remote]:
    """A process of an unprivileged user with umask 077; it imported all modules before it changed the user."""
    if os.geteuid():
        pytest.fail("this test needs root, as in the containers of the tests")
    for part in [*reversed(tmp_path.parents[:3]), tmp_path]:
        part.chmod(0o755)
    remote = Remote(f"sqlite:///{tmp_path}/before.db")
    remote.do("import os, logging, pathlib, socket\nwith locks.lock('x', label='y'): pass\nlocks.close()")
    who = f"{NOBODY}, {NOBODY}, {NOBODY}"
    remote.do(f"os.umask(0o077); os.setgroups([]); os.setresgid({who}); os.setresuid({who})")
    yield remote
    remote.close()


@pytest.mark.parametrize("umask", [0, 0o077])
def test_a_file_is_of_one_user_unless_its_folder_is_shared(
    url: str, folder: Path, nobody: Remote, umask: int, claims: Callable[[], str]
) -> None:
    before = os.umask(umask)
    try:
        with interlock.connect(url) as locks, locks.lock("a"):
            for path in (folder / "locks.db", claims()):
                assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            for mode in (0o755, 0o1777):
                folder.chmod(mode)
                with pytest.raises(RemoteError, match=r"[Tt]his user"):
                    nobody.do(f"interlock.connect({url!r}).lock('b').acquire()")
    finally:
        os.umask(before)


def test_users_of_a_group_share_a_file_whatever_their_umask(
    url: str, folder: Path, nobody: Remote, claims: Callable[[], str]
) -> None:
    os.chown(folder, 0, NOBODY)
    folder.chmod(0o2770)
    nobody.do(f"locks = interlock.connect({url!r}); grant = locks.lock('a').acquire()")
    assert stat.S_IMODE(os.stat(claims()).st_mode) == 0o660
    with interlock.connect(url) as locks:
        waiting = locks.lock("a")
        assert waiting.acquire(timeout=0) is None
        nobody.do("grant.release()")
        with waiting:
            nobody.do("assert locks.lock('a').acquire(timeout=0) is None")
        nobody.do("with locks.lock('a'): pass")


def channel_of(file: str, id: str) -> str:
    """Return the address on which the process of a claim listens."""
    with closing(sqlite3.connect(file)) as database:
        lines = "\n".join(text for (text,) in database.execute("SELECT text FROM line"))
    return next(
        word for row in lines.split("\n") if row.startswith(id) for word in row.split() if "interlock-" in word
    )


def test_waiters_are_notified_by_processes_of_the_same_user(
    claims: Callable[[], str], locks: Any, remote: Callable[[], Remote], nobody: Remote
) -> None:
    other = remote()
    times = []
    for _ in range(5):
        grant = locks.lock("a").acquire()
        other.start("with locks.lock('a'): pass\nimport time; result = time.monotonic()")
        eventually(lambda: len(locks.claims("a")) == 2)
        released = moment()
        grant.release()
        times.append(other.answer() - released)
    assert min(times) < 0.5  # it would look after five seconds
    with locks.lock("a"):
        other.start("with locks.lock('a') as held: result = held.fence")
        eventually(lambda: len(locks.claims("a")) == 2)
        id = locks.claims("a")[1].id
        channel = channel_of(claims(), id)
        nobody.do(f"with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s: s.sendto(b'{id} 7', '\\0{channel}')")
        throughout(0.2, lambda: [view.state for view in locks.claims("a")] == ["using", "pending"])
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            for forged in (b"", b"garbage \xff\n\n7"):
                speaking.sendto(forged, f"\0{channel}")
        released = moment()
    assert other.answer() > 7
    assert since(released) < 4  # it was notified: it still listens


# -- places ------------------------------------------------------------------------------------------------


def test_the_locks_of_an_engine_lie_beside_its_database(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/app.db")
    tasks = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")

    async def refused() -> bool:
        async with interlock.aconnect(tasks) as others:
            return await others.lock("a").acquire(timeout=0) is None

    with interlock.connect(engine) as locks, locks.lock("a"):
        assert asyncio.run(refused())
        assert (tmp_path / "app.db").exists() is False
        assert any(each.startswith("app.db.locks-") for each in os.listdir(tmp_path))


def excluded(one: Any, other: Any) -> bool:
    """Tell whether a lock of one connection excludes the other connection."""
    with one.lock("a"):
        return other.lock("a").acquire(timeout=0) is None


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sqlite://", "sqlite:////"),
        ("sqlite:///file:x.db?uri=true", "sqlite:////"),
        ("sqlite:///app.db", "four slashes"),
        ("sqlite:///app.db?uri=true", "four slashes"),
    ],
)
def test_an_engine_without_an_absolute_file_is_refused(url: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        interlock.connect(create_engine(url))


@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
@pytest.mark.parametrize("path", ["b/link.db", "c/app.db"])
@pytest.mark.parametrize("engine", [False, True], ids=["url", "engine"])
def test_a_file_has_the_same_locks_by_whatever_symbolic_link(
    tmp_path: Path, there: bool, path: str, engine: bool
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    if there:
        (tmp_path / "a" / "app.db").touch()
    (tmp_path / "b" / "link.db").symlink_to("further.db")
    (tmp_path / "b" / "further.db").symlink_to("../a/app.db")
    (tmp_path / "c").symlink_to("a")
    targets = [f"sqlite:///{tmp_path / each}" for each in ("a/app.db", path)]
    locks, others = (interlock.connect(create_engine(each) if engine else each) for each in targets)
    with locks, others:
        assert excluded(locks, others)


def test_a_symbolic_link_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.fail("this test needs root, as in the containers of the tests")
    (tmp_path / "link.db").symlink_to(tmp_path / "locks.db")
    os.lchown(tmp_path / "link.db", NOBODY, NOBODY)
    with pytest.raises(InvalidArgument, match="another user"):
        interlock.connect(f"sqlite:///{tmp_path}/link.db")


def test_tasks_wait_for_nobody_who_writes(url: str, claims: Callable[[], str]) -> None:
    async def main() -> bool:
        async with interlock.aconnect(url) as alocks:
            entering = asyncio.create_task(alocks.lock("a", timeout=10).acquire())
            for _ in range(20):
                await asyncio.sleep(0.001)
            blocker.close()
            return (await entering).held

    blocker = sqlite3.connect(claims(), isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    assert asyncio.run(main())


def test_doctor_finds_what_is_damaged(remote: Callable[[], Remote], claims: Callable[[], str]) -> None:
    one = remote()
    assert one.do("result = sorted({check.status for check in locks.doctor()})") == ["ok"]
    one.do("grants = [locks.lock(f'{number}' * 300).acquire() for number in range(100)]")
    other = remote()  # another process, since the first has cached the pages
    with open(claims(), "r+b") as file:
        file.seek(4096 * 6)
        file.write(os.urandom(4096 * 4))
    assert "fail" in other.do("result = [check.status for check in locks.doctor()]")


def status_on(kind: str, url: str, monkeypatch: pytest.MonkeyPatch, allow: str = "") -> str:
    """Use a file on that file system; return "used", or the kind of the refusal."""
    monkeypatch.setattr(machine, "mount_of", lambda path: machine.Mount("/", "/", kind))
    try:
        with interlock.connect(f"{url}?allow={allow}" if allow else url) as locks:
            locks.lock("a").acquire(timeout=0).release()
    except StoreError as error:
        return "network" if "network file system" in str(error) else "allow" if f"?allow={kind}" in str(error) else ""
    return "used"


@pytest.mark.parametrize(
    ("kind", "allow", "status"),
    [
        ("ext4", "", "used"),
        ("fuse.fuse-overlayfs", "", "used"),
        ("nfs4", "", "network"),
        ("9p", "", "network"),
        ("fuse.whatever", "", "allow"),
        ("virtiofs", "", "allow"),
        ("virtiofs", "virtiofs", "used"),
        ("fuse.rclone", "virtiofs", "allow"),
        ("nfs4", "virtiofs", "network"),
    ],
)
def test_network_file_systems_are_refused(
    url: str, folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str, allow: str, status: str
) -> None:
    assert status_on(kind, url, monkeypatch, allow) == status
    assert bool(list(folder.iterdir())) == (status == "used"), "nothing is made where it is refused"
