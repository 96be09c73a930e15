"""What may go wrong between a lock and its file: each is done to real files and processes."""

import asyncio
import os
import random
import signal
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.stores.sqlite.database import Database
from interlock.stores.sqlite.line import SqliteStep
from interlock.stores.sqlite.options import Options
from interlock.testing.remote import Remote, RemoteError, logged
from interlock.testing.waiting import RENEWED, eventually, moment, since
from tests.support.crowd import nobody_waits_for_the_others

Start = Callable[[], Remote]
IN_A_STEP = """
import os, sys, time
from interlock.stores.sqlite.line import SqliteStep
def halfway(execute, clock):
    for number in range(3000):  # more than SQLite keeps in memory: it writes to the file before the commit
        about = (number, 'x' * 1000)
        execute("INSERT INTO claims VALUES (x'00', ?, '', 1, 1, 0, 0, 0, '', '', ?, '', 0, '', '')", about)
    execute("DELETE FROM claims")
    open({mark!r}, 'w').close()
    {then}
locks._session.store._server.ask(SqliteStep(halfway))
"""


def healthy(options: Options) -> bool:
    """Ask SQLite, from outside, whether the file is sound."""
    connection = sqlite3.connect(options.file)
    try:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
    finally:
        connection.close()


def test_a_holder_that_is_killed_keeps_the_lock_until_its_lease_ends(locks: Any, remote: Start) -> None:
    other = remote()
    fence = other.do("grant = locks.lock('a', ttl=1.0).acquire(); result = grant.fence")
    other.kill()
    started = moment()
    assert locks.lock("a").acquire(timeout=0) is None
    with locks.lock("a", timeout=10) as grant:
        assert grant.fence > fence
        assert since(started) < 5


def test_a_writer_killed_in_the_middle_of_a_step_changes_nothing(
    locks: Any, remote: Start, options: Options, tmp_path: Path
) -> None:
    grant = locks.lock("a").acquire()
    other = remote()
    size = os.stat(options.file).st_size
    other.start(IN_A_STEP.format(mark=str(tmp_path / "mark"), then="os.kill(os.getpid(), 9)"))
    assert other.process.wait(60) == -signal.SIGKILL
    assert os.stat(options.file).st_size > size  # it had begun to write to the file itself
    assert [view.id for view in locks.claims("a")] == [grant.id]
    assert healthy(options)
    assert grant.release() is True


def test_a_writer_that_is_stopped_is_waited_for(locks: Any, remote: Start, tmp_path: Path) -> None:
    other = remote()
    mark = tmp_path / "mark"
    other.start(IN_A_STEP.format(mark=str(mark), then="import signal; os.kill(os.getpid(), signal.SIGSTOP)"))
    stat = Path(f"/proc/{other.process.pid}/stat")
    eventually(lambda: mark.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T")
    with ThreadPoolExecutor() as pool:
        try:
            waiting = pool.submit(locks.lock("b", timeout=15).acquire)
            eventually(lambda: locks._session.store._server.database._line)
        finally:
            other.signal(signal.SIGCONT)
        assert waiting.result(30).release() is True
    other.answer()


def test_a_file_that_others_keep_locked_is_an_error_in_time(url: str, locks: Any, options: Options) -> None:
    grant = locks.lock("a").acquire()
    blocker = sqlite3.connect(options.file, isolation_level=None)
    code = (
        f"import interlock, time; started = time.monotonic()\n"
        f"try: interlock.connect('{url}?timeout=0.3')\n"
        f"finally: assert 0.3 <= time.monotonic() - started < 5"
    )
    other = Remote(None)
    try:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(RemoteError, match="another program keeps it locked") as caught:
            other.do(code)
        assert caught.value.kind == "Passing"
    finally:
        blocker.close()
        other.close()
    assert grant.renew() > 0


def test_processes_that_are_killed_at_random_lose_no_update(
    locks: Any, remote: Start, url: str, options: Options, tmp_path: Path
) -> None:
    chance = random.Random(7)
    log = str(tmp_path / "log")
    open(log, "a").close()
    workers = [remote() for _ in range(4)]
    for worker in workers:
        worker.start(
            f"from interlock.testing.remote import log_next\n"
            f"shorter = interlock.connect({url!r}, ttl={RENEWED})\n"
            f"while True:\n"
            f"    with shorter.lock('book') as grant: log_next({log!r}, grant.fence)"
        )
    for worker in workers[:3]:
        goal = len(logged(log)[0]) + chance.randrange(10, 40)
        eventually(lambda goal=goal: len(logged(log)[0]) >= goal)  # type: ignore[misc]
        worker.kill()
    goal = len(logged(log)[0]) + 10
    eventually(lambda: len(logged(log)[0]) >= goal)
    workers[3].kill()
    with locks.lock("book", timeout=10) as last:
        numbers, fences = logged(log)
    assert numbers == list(range(1, len(numbers) + 1))
    assert fences == sorted(set(fences))
    assert last.fence > fences[-1]
    assert healthy(options)


@pytest.mark.parametrize("replaced", [False, True])
def test_who_held_in_a_file_that_is_gone_hears_of_it(
    locks: Any, options: Options, tmp_path: Path, replaced: bool
) -> None:  # fmt: skip
    grant = locks.lock("a").acquire()
    if replaced:
        (tmp_path / "new").touch()
        os.replace(tmp_path / "new", options.file)
    else:
        os.unlink(options.file)
    with pytest.raises(StoreError, match="removed or replaced"):
        locks.lock("b").acquire()
    with locks.lock("a") as later:  # in the new file
        assert later.fence > grant.fence
    assert grant.renew() is False
    assert grant.lost


def test_a_folder_that_is_gone_is_an_error(locks: Any, options: Options) -> None:
    os.rename(os.path.dirname(options.file), os.path.dirname(options.file) + ".moved")
    for what in ("removed or replaced", "make it"):
        with pytest.raises(StoreError, match=what):
            locks.lock("a").acquire(timeout=0)


def test_a_disk_that_is_full_is_an_error_until_there_is_room(remote: Start) -> None:
    other = remote()
    other.do("import resource; most = resource.getrlimit(resource.RLIMIT_FSIZE)")
    other.do("held = [locks.lock(f'{number}').acquire() for number in range(10)]")
    other.do("resource.setrlimit(resource.RLIMIT_FSIZE, (16384, most[1]))")
    with pytest.raises(RemoteError, match="full"):
        other.do("for number in range(200): held.append(locks.lock('x' * 500 + str(number)).acquire(timeout=0))")
    other.do("resource.setrlimit(resource.RLIMIT_FSIZE, most)")
    assert other.do("result = all(each.release() for each in held if each is not None)") is True
    assert other.do("result = locks.lock('z').acquire(timeout=0).release()") is True


def test_threads_take_turns_in_the_order_in_which_they_come(options: Options) -> None:
    database = Database(options)
    database.perform(SqliteStep(lambda execute, clock: []))
    order: list[int] = []
    blocker = sqlite3.connect(options.file, isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    threads = []
    for number in range(6):

        def step(execute: Any, clock: Any, number: int = number) -> list[Any]:
            order.append(number)
            return []

        threads.append(threading.Thread(target=database.perform, args=(SqliteStep(step),)))
        threads[-1].start()
        eventually(lambda: database._last is database._line.get(threads[-1].ident))
    blocker.close()
    for thread in threads:
        thread.join()
    database.close()
    assert order == list(range(6))


def test_a_process_forks_while_its_threads_are_at_work(locks: Any, remote: Start) -> None:
    other = remote()
    other.do(
        "import threading, os\n"
        "ended = threading.Event()\n"
        "def work(name):\n"
        "    while not ended.is_set():\n"
        "        with locks.lock(name): pass\n"
        "threads = [threading.Thread(target=work, args=(name,)) for name in 'abc']\n"
        "for thread in threads: thread.start()"
    )
    forking = (
        "codes = []\n"
        "for number in range(10):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        try:\n"
        "            locks.lock('a').acquire(timeout=10).release()\n"
        "            os._exit(0)\n"
        "        finally: os._exit(1)\n"
        "    codes.append(os.waitpid(child, 0)[1])\n"
        "result = codes"
    )
    assert set(other.do(forking)) == {0}
    other.do("ended.set()\nfor thread in threads: thread.join()")
    with locks.lock("a", timeout=10):
        pass


def test_a_crowd_of_tasks_waits_for_others_no_longer_than_one(url: str, options: Options) -> None:
    """They share one thread; the time in line for it counts."""

    async def play() -> None:
        async with interlock.aconnect(f"{url}?timeout=2") as locks:
            await (await locks.lock("a").acquire()).release()
            blocker = sqlite3.connect(options.file, isolation_level=None)
            blocker.execute("BEGIN IMMEDIATE")
            try:
                await nobody_waits_for_the_others(locks)
            finally:
                blocker.close()

    asyncio.run(play())
