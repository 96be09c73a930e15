"""file:// and sqlite:// on Windows: names and paths, files that live, what is refused, and blocked loopback."""

import asyncio
import ctypes
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.runtime import clock
from interlock.stores.files import machine
from interlock.stores.files.open_file import Mount
from interlock.stores.files.system import system
from interlock.testing.other_process import Remote, logged
from interlock.testing.waiting import eventually

TRY = "grant = locks.lock('book').acquire(timeout=0); result = grant is not None"
WAIT = "grant = locks.lock('book').acquire(); result = grant.fence"
BLOCKED = """
import socket
class Blocked(socket.socket):
    def bind(self, address):
        raise PermissionError(13, "loopback is blocked")
    def sendto(self, *words):
        raise PermissionError(13, "loopback is blocked")
socket.socket = Blocked
"""
"""Statements after which no socket of a process can be bound, or send a datagram."""

SILENT = """
import socket
class Silent(socket.socket):
    def sendto(self, data, *words):
        return len(data)
    def connect(self, address):
        raise TimeoutError("loopback is blocked")
socket.socket = Silent
"""
"""Statements after which what a process sends to sockets does not arrive."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def remote(folder: Path) -> Iterator[Callable[..., Remote]]:
    """Start a process, with statements before it connects as `locks`; all are killed after the test."""
    started: list[Remote] = []

    def start(before: str = "") -> Remote:
        process = Remote(None)
        started.append(process)
        process.do(f"{before}\nurl = {folder.as_uri()!r}\nlocks = interlock.connect(url)")
        return process

    yield start
    for each in started:
        each.close()


def until_waiting(locks: interlock.Locks, waiters: int) -> None:
    """Wait until so many claims wait for the lock."""
    eventually(lambda: sum(claim.state == "pending" for claim in locks.claims("book")) == waiters, 30)


DEVICES = ["con", "NUL", "aux.txt", "com1", "lpt9.x", "CON.ünï", "conin$"]


@pytest.mark.parametrize(
    "name", [*DEVICES, "a:b", "dot.", " blank ", "a/b\\c", "q?*<|>", "x" * 300, "ünïcode", "..", "~"]
)
def test_every_name_can_be_locked(folder: Path, name: str) -> None:
    with interlock.connect(folder) as locks, interlock.connect(folder) as other, locks.lock(name):
        assert other.lock(name).acquire(timeout=0) is None
        assert [claim.name for claim in other.claims()] == [name]
        (file,) = os.listdir(folder / "lines")
        assert (folder / "lines" / file).stat().st_size > 0


def test_names_that_differ_in_case_are_two_locks(folder: Path) -> None:
    with interlock.connect(folder) as locks, locks.lock("Book"), locks.lock("book"), locks.lock("BOOK"):
        assert len(locks.claims()) == 3


def test_a_long_path_is_a_folder(tmp_path: Path) -> None:
    long = tmp_path / ("a" * 100) / ("b" * 100) / "locks"
    with interlock.connect(long) as locks, interlock.connect(long) as other, locks.lock("x" * 200):
        assert other.lock("x" * 200).acquire(timeout=0) is None


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("file:////server/share/locks", StoreError, r"another machine \(UNC\).*redis://"),
        ("file:///locks", InvalidArgument, "a drive.*file:///C:/locks"),
        ("file:///C:/locks/con", InvalidArgument, "'con'"),
        ("file:///C:/locks:stream", InvalidArgument, "'locks:stream'"),
        ("file:///C:/locks%20/x", InvalidArgument, "'locks '"),
        ("file:///C:/locks?mode=0770", InvalidArgument, "icacls"),
        ("file:///Q:/locks", StoreError, "no drive Q:"),
        ("file://C:/locks", InvalidArgument, "three slashes.*file:///C:/locks"),
        ("file://server/share", InvalidArgument, "three slashes.*file:///C:/locks"),
        ("C:\\locks", InvalidArgument, "Did you mean 'file:///C:/locks'"),
        ("sqlite:///locks.db", InvalidArgument, "three slashes and a drive"),
        ("sqlite:///:memory:", InvalidArgument, "sqlite:///C:/locks.db"),
    ],
)
@pytest.mark.parametrize("connect", [interlock.connect, interlock.aconnect])
def test_what_is_no_local_folder_is_refused(
    url: str, error: type[Exception], said: str, connect: Callable[[str], object]
) -> None:
    with pytest.raises(error, match=said):
        connect(url)


@pytest.mark.parametrize("begin", ["file:///", "sqlite:///"])
def test_a_drive_of_another_machine_is_refused(begin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for a mapped drive, which wine does not have."""
    monkeypatch.setattr(machine, "mount_of", lambda path: Mount("Z:\\", "", "remote"))
    with pytest.raises(StoreError, match=r"network file system.*redis://"):
        with interlock.connect(f"{begin}{tmp_path.as_posix()}/locks") as locks:
            locks.lock("book").acquire()


def test_the_default_folder_is_in_local_appdata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    with interlock.connect() as locks, locks.lock("book"):
        assert (tmp_path / "interlock" / "locks" / "lines" / "book").exists()


@pytest.mark.parametrize("value", [None, "", "relative"])
def test_a_user_without_local_appdata_is_told(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INTERLOCK_URL", raising=False)
    if value is None:
        monkeypatch.delenv("LOCALAPPDATA")
    else:
        monkeypatch.setenv("LOCALAPPDATA", value)
    with pytest.raises(StoreError, match=r"INTERLOCK_URL.*file:///C:/locks"):
        interlock.connect()


def test_nobody_removes_or_renames_a_living_file(folder: Path) -> None:
    with interlock.connect(folder) as locks, locks.lock("book") as grant:
        for path in [folder / "lines" / "book", *(folder / "alive").iterdir()]:
            with pytest.raises(PermissionError):
                path.unlink()
            with pytest.raises(PermissionError):
                path.rename(path.with_name("moved"))
        assert grant.renew() is True


def test_a_closed_connection_leaves_no_file(folder: Path) -> None:
    with interlock.connect(folder) as locks, locks.lock("book"):
        pass
    assert os.listdir(folder / "alive") == []
    eventually(lambda: _lines_after_a_visit(folder) == [])


def _lines_after_a_visit(folder: Path) -> list[str]:
    with interlock.connect(folder) as locks, locks.lock("book"):
        pass
    return os.listdir(folder / "lines")


def test_files_of_the_dead_are_removed(folder: Path, remote: Callable[..., Remote]) -> None:
    dead = remote()
    dead.do(WAIT)
    assert len(os.listdir(folder / "alive")) == 1
    dead.kill()

    def swept() -> bool:
        interlock.connect(folder).close()
        return os.listdir(folder / "alive") == []

    eventually(swept)


def test_a_program_that_has_a_file_for_itself_is_waited_for(folder: Path) -> None:
    """As a virus scanner or an indexer does."""
    with interlock.connect(folder) as locks:
        locks.lock("book").acquire().release()
    path = folder / "lines" / "book"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    kernel = ctypes.WinDLL("kernel32")
    kernel.CreateFileW.restype = ctypes.c_void_p
    alone = ctypes.c_void_p(kernel.CreateFileW(str(path), 0x80000000, 0, None, 3, 0, None))
    with pytest.raises(PermissionError):
        path.read_bytes()
    threading.Timer(0.2, kernel.CloseHandle, [alone]).start()
    with interlock.connect(folder) as locks, locks.lock("book", timeout=0):
        assert len(locks.claims("book")) == 1


def test_a_lock_that_this_descriptor_has_is_no_obstacle(tmp_path: Path) -> None:
    """An interrupt may keep the guard locked; the next step must get it, and nobody else."""
    (tmp_path / "x").touch()
    one, other = os.open(tmp_path / "x", os.O_RDWR), os.open(tmp_path / "x", os.O_RDWR)
    attempt = system.LOCK_EX | system.LOCK_NB
    for _ in range(3):
        system.flock(one, attempt)
        with pytest.raises(BlockingIOError):
            system.flock(other, attempt)
    system.flock(one, system.LOCK_UN)
    system.flock(other, attempt)
    os.close(one)
    os.close(other)


def test_all_processes_have_one_clock(remote: Callable[..., Remote]) -> None:
    other = remote()
    for name in ("now", "awake_or_not", "time_of_day"):
        before = getattr(clock, name)()
        there = other.do(f"from interlock.runtime import clock; result = clock.{name}()")
        assert before - 0.05 <= there <= getattr(clock, name)() + 0.05


def test_the_doctor_knows_who_runs(remote: Callable[..., Remote]) -> None:
    other = remote()
    number = str(other.do("import os; result = os.getpid()"))
    assert system.is_running(number)
    other.kill()
    eventually(lambda: not system.is_running(number))


def test_closing_twice_leaves_other_connections_their_notifications(
    folder: Path, remote: Callable[..., Remote]
) -> None:
    waiter = remote("import interlock, tempfile; spare = interlock.connect('file:///' + tempfile.mkdtemp())")
    with interlock.connect(folder) as locks:
        held = locks.lock("book").acquire()
        waiter.do("spare.lock('x').acquire().release()")
        waiter.start("def wait():\n global grant\n grant = locks.lock('book').acquire(timeout=60)\n"
                     "import threading; waiting = threading.Thread(target=wait); waiting.start()")  # fmt: skip
        waiter.answer()
        until_waiting(locks, 1)
        channel = "from interlock.runtime.host_notifier import neighbours; result = neighbours.channel"
        before = waiter.do(channel)
        waiter.do("spare.close(); spare.close(); interlock.connect('file:///' + tempfile.mkdtemp()).close()")
        assert waiter.do(channel) == before != ""
        held.release()
        waiter.do("waiting.join(30); result = grant.fence")


@pytest.mark.parametrize("how", [BLOCKED, SILENT], ids=["blocked", "silent"])
def test_waiters_poll_where_loopback_is_blocked(folder: Path, remote: Callable[..., Remote], how: str) -> None:
    holder, waiter = remote(how), remote(how)
    with interlock.connect(folder) as locks:
        first = holder.do(WAIT)
        waiter.start(WAIT)
        until_waiting(locks, 1)
        holder.do("grant.release()")
        second = waiter.answer(5)
        assert second > first
        holder.start(WAIT)
        until_waiting(locks, 1)
        waiter.kill()
        assert holder.answer(5) > second


async def until_in_line(locks: interlock.AsyncLocks, number: int) -> None:
    """Wait until so many claims hold or wait."""
    while len(await locks.claims("book")) < number:  # noqa: ASYNC110 - other processes enter
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("policy", ["ProactorEventLoop", "SelectorEventLoop"])
def test_a_killed_holder_wakes_a_task(folder: Path, remote: Callable[..., Remote], policy: str) -> None:
    holder = remote()
    first = holder.do(WAIT)

    async def wait() -> int:
        async with interlock.aconnect(folder) as locks:
            waiting = asyncio.create_task(locks.lock("book").acquire())
            await until_in_line(locks, 2)
            holder.process.kill()
            grant = await asyncio.wait_for(waiting, 10)
            await grant.release()
            return grant.fence

    with asyncio.Runner(loop_factory=getattr(asyncio, policy)) as runner:
        assert runner.run(wait()) > first


def test_more_tasks_wait_than_select_takes_sockets(folder: Path, remote: Callable[..., Remote]) -> None:
    holder = remote()
    holder.do(WAIT)

    async def crowd() -> list[int]:
        async with interlock.aconnect(folder) as locks:
            lock = locks.lock("book", ttl=60)
            waiting = [asyncio.create_task(lock.acquire()) for _ in range(600)]
            await until_in_line(locks, 601)
            holder.process.kill()
            fences, rest = [], set(waiting)
            for _ in range(3):
                done, rest = await asyncio.wait(rest, timeout=30, return_when=asyncio.FIRST_COMPLETED)
                (grant,) = [task.result() for task in done]
                fences.append(grant.fence)
                await grant.release()
            for task in rest:
                task.cancel()
            await asyncio.gather(*rest, return_exceptions=True)
            return fences

    fences = asyncio.run(crowd())
    assert fences == sorted(set(fences))


def test_kills_leave_one_holder_at_a_time(folder: Path, remote: Callable[..., Remote], tmp_path: Path) -> None:
    log, lucky = tmp_path / "log", random.Random(7)
    workers = [remote() for _ in range(3)]
    for each in workers:
        each.start(f"count(url, 'book', {str(log)!r}, 10**6, 0.002)")
    for _ in range(6):
        time.sleep(lucky.uniform(0.3, 1.0))
        number = lucky.randrange(len(workers))
        workers[number].kill()
        workers[number] = remote()
        workers[number].start(f"count(url, 'book', {str(log)!r}, 10**6, 0.002)")
    for each in workers:
        each.kill()
    numbers, fences = logged(str(log))
    assert len(numbers) > 20
    assert numbers == list(range(1, len(numbers) + 1))
    assert fences == sorted(set(fences))
    with interlock.connect(folder) as locks, locks.lock("book", timeout=5) as grant:
        assert grant.fence > fences[-1]


def test_a_database_of_locks_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{(tmp_path / 'locks.db').as_posix()}"
    with interlock.connect(url) as locks:
        held = locks.lock("book").acquire()
        with locks.once("nightly", keep=3600) as run:
            run.result = "sent"
        assert held is not None
    monkeypatch.setattr(system, "restart_id", lambda: "another start")
    with interlock.connect(url) as locks:
        assert locks.lock("book").acquire(timeout=0).fence > held.fence
        with locks.once("nightly", keep=3600) as run:
            assert (run.due, run.result) == (False, "sent")
