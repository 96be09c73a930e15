"""Which file it is, whose it is, and what lies there instead."""

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
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.sqlite.options import Options
from interlock.stores.sqlite.store import ThreadSqliteStore
from interlock.testing.remote import Remote, RemoteError
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
        ("sqlite:////tmp/", "name a file"),
        ("sqlite:////tmp/a%00b", "NUL"),
        ("sqlite:////tmp/x?timeout=0", "seconds"),
        ("sqlite:////tmp/x?allow=nfs", "no option"),
        ("sqlite:////tmp/x?synchronous=off", "no option"),
        ("sqlite:////tmp/x?timeout=1&timeout=2", "twice"),
    ],
)
def test_a_url_that_names_no_file_is_refused(url: str, said: str) -> None:
    for connect in (interlock.connect, interlock.aconnect):
        with pytest.raises(InvalidArgument, match=said):
            connect(url)


def test_other_options_for_the_same_file_are_refused(url: str, locks: Any) -> None:
    with pytest.raises(InvalidArgument, match="write them alike"):
        interlock.connect(f"{url}?timeout=3")


def _folder(path: str) -> None:
    os.mkdir(path)


def _link(path: str) -> None:
    os.symlink("/etc/passwd", path)


def _pipe(path: str) -> None:
    os.mkfifo(path)


def _hard_link(path: str) -> None:
    open(path + ".other", "w").close()
    os.link(path + ".other", path)


def _text(path: str) -> None:
    Path(path).write_text("I am no database, and longer than its header: " + "x" * 5000)


def _foreign(path: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute("CREATE TABLE books (name)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("make", [_folder, _link, _pipe, _hard_link, _text, _foreign])
def test_what_is_no_file_of_locks_is_refused_and_left_alone(
    url: str, options: Options, make: Callable[[str], None]
) -> None:  # fmt: skip
    make(options.file)
    before = os.lstat(options.file)
    with pytest.raises(StoreError, match=r"not a file|has another name|no SQLite database|something else"):
        interlock.connect(url)
    after = os.lstat(options.file)
    assert (before.st_ino, before.st_size, before.st_mode) == (after.st_ino, after.st_size, after.st_mode)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="make it"):
        interlock.connect(f"sqlite:///{tmp_path}/missing/locks.db")


def test_the_claims_of_before_a_restart_are_void_and_their_fences_are_not_repeated(
    url: str, options: Options
) -> None:  # fmt: skip
    before = options._replace(file=f"{options.path}-0123456789ab")
    with interlock.connect(url) as locks:
        del locks
    os.rename(options.file, before.file)
    later = time.time() + 3600  # the clock was set back by an hour since
    store = ThreadSqliteStore(before)
    store._server.ask(store._steps.enter(interlock.stores.base.Claim("1" * 32, _spec("a")), "try", ""))
    store.close()
    os.utime(before.file, (later, later))
    with interlock.connect(url) as locks:
        grant = locks.lock("a").acquire(timeout=0)
        assert grant is not None
        assert grant.fence > later * 1_000_000
        assert sorted(os.listdir(os.path.dirname(options.file))) == [
            os.path.basename(options.file),
            os.path.basename(options.file) + "-journal",
        ]


def _spec(name: str) -> Any:
    from interlock.core.claims import LockSpec

    return LockSpec(f"\0{name}")


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[Remote]:
    """A process of a user without rights, whose files are for him alone; it has loaded all that it needs before."""
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
    url: str, options: Options, nobody: Remote, umask: int
) -> None:
    folder = Path(options.file).parent
    before = os.umask(umask)
    try:
        with interlock.connect(url) as locks, locks.lock("a"):
            assert stat.S_IMODE(os.stat(options.file).st_mode) == 0o600
            for mode in (0o755, 0o1777):
                folder.chmod(mode)
                with pytest.raises(RemoteError, match="this user"):
                    nobody.do(f"interlock.connect({url!r})")
    finally:
        os.umask(before)


def test_users_of_a_group_share_a_file_whatever_their_umask(url: str, options: Options, nobody: Remote) -> None:
    folder = Path(options.file).parent
    os.chown(folder, 0, NOBODY)
    folder.chmod(0o2770)
    nobody.do(f"locks = interlock.connect({url!r}); grant = locks.lock('a').acquire()")
    assert stat.S_IMODE(os.stat(options.file).st_mode) == 0o660
    with interlock.connect(url) as locks:
        waiting = locks.lock("a")
        assert waiting.acquire(timeout=0) is None
        nobody.do("grant.release()")
        with waiting:
            nobody.do("assert locks.lock('a').acquire(timeout=0) is None")
        nobody.do("with locks.lock('a'): pass")


def test_a_waiter_is_told_by_other_processes_and_not_by_other_users(
    options: Options, locks: Any, remote: Callable[[], Remote], nobody: Remote
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
        with closing(sqlite3.connect(options.file)) as database:
            ((channel,),) = database.execute("SELECT channel FROM claims WHERE id = ?", (id,))
        nobody.do(f"with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s: s.sendto(b'{id} 7', '\\0{channel}')")
        throughout(0.2, lambda: [view.state for view in locks.claims("a")] == ["using", "pending"])
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            for forged in (b"", b"garbage \xff\n\n7"):
                speaking.sendto(forged, f"\0{channel}")
        released = moment()
    assert other.answer() > 7
    assert since(released) < 4  # it still hears


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
    for url in ("sqlite://", "sqlite:///file:x.db?uri=true"):
        with pytest.raises(InvalidArgument, match="sqlite:////"):
            interlock.connect(create_engine(url))


def excluded(one: Any, other: Any) -> bool:
    """Tell whether what one connection locks is locked for the other."""
    with one.lock("a"):
        return other.lock("a").acquire(timeout=0) is None


def test_the_locks_of_an_engine_lie_beside_the_file_that_it_opens_wherever_the_process_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    engines = [create_engine("sqlite:///app.db") for _ in range(2)]
    tasks = create_async_engine("sqlite+aiosqlite:///app.db")
    with interlock.connect(engines[0]) as locks:
        monkeypatch.chdir(tmp_path / "b")
        with interlock.connect(engines[1]) as others:
            assert excluded(locks, others)
        with interlock.connect(f"sqlite:///{tmp_path}/a/app.db.locks") as others:
            assert excluded(locks, others)

        async def refused() -> bool:
            async with interlock.aconnect(tasks) as others:
                return await others.lock("a").acquire(timeout=0) is None

        with locks.lock("a"):
            assert asyncio.run(refused())
    assert os.listdir(tmp_path / "b") == []


def test_an_engine_whose_file_changes_with_the_working_directory_is_refused() -> None:
    made = [
        create_engine("sqlite:///app.db", creator=lambda: sqlite3.connect("app.db")),
        create_engine("sqlite:///app.db?uri=true"),
    ]
    for engine in made:
        with pytest.raises(InvalidArgument, match="four slashes"):
            interlock.connect(engine)


@pytest.mark.parametrize("there", [False, True], ids=["missing", "there"])
def test_a_file_has_the_same_locks_by_whatever_symbolic_link(tmp_path: Path, there: bool) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
    if there:
        (tmp_path / "a" / "app.db").touch()
    (tmp_path / "b" / "link.db").symlink_to("further.db")
    (tmp_path / "b" / "further.db").symlink_to("../a/app.db")
    (tmp_path / "c").symlink_to("a")
    for make in (lambda path: create_engine(f"sqlite:///{path}"), lambda path: f"sqlite:///{path}"):
        with interlock.connect(make(tmp_path / "a" / "app.db")) as locks:
            for path in (tmp_path / "b" / "link.db", tmp_path / "c" / "app.db"):
                with interlock.connect(make(path)) as others:
                    assert excluded(locks, others), path


def test_a_symbolic_link_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.fail("this test needs root, as in the containers of the tests")
    (tmp_path / "link.db").symlink_to(tmp_path / "locks.db")
    os.lchown(tmp_path / "link.db", NOBODY, NOBODY)
    with pytest.raises(InvalidArgument, match="another user"):
        interlock.connect(f"sqlite:///{tmp_path}/link.db")


def test_a_path_that_is_not_utf_8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.db")
    with interlock.connect(f"sqlite:///{path}") as locks:
        with interlock.connect(f"sqlite:///{tmp_path}/caf%E9.db") as others:
            assert excluded(locks, others)
    with interlock.connect(create_engine(f"sqlite:///{path}")) as locks, locks.lock("a"):
        assert any(each.startswith(b"caf\xe9.db.locks-") for each in os.listdir(os.fsencode(tmp_path)))


def test_aconnect_waits_for_nobody_who_writes(url: str, options: Options) -> None:
    async def main() -> bool:
        async with interlock.aconnect(url) as alocks:
            blocker.close()
            async with alocks.lock("a", timeout=10) as grant:
                return grant.held

    interlock.connect(url).close()
    blocker = sqlite3.connect(options.file, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    started = moment()
    assert asyncio.run(main())
    assert since(started) < 4  # it would have waited for five seconds, and failed


@pytest.mark.parametrize("make", [_folder, _text, _foreign])
def test_aconnect_tells_at_once_what_is_no_file_of_locks(
    url: str, options: Options, make: Callable[[str], None]
) -> None:  # fmt: skip
    make(options.file)
    with pytest.raises(StoreError, match=r"not a file|no SQLite database|something else"):
        interlock.aconnect(url)


def test_doctor_finds_what_is_damaged(remote: Callable[[], Remote], options: Options) -> None:
    one = remote()
    assert one.do("result = sorted({check.status for check in locks.doctor()})") == ["ok"]
    one.do("grants = [locks.lock(f'{number}' * 300).acquire() for number in range(100)]")
    other = remote()  # what one process has read, it does not read again
    with open(options.file, "r+b") as file:
        file.seek(4096 * 6)
        file.write(os.urandom(4096 * 4))
    assert "fail" in other.do("result = [check.status for check in locks.doctor()]")
