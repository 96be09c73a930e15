"""Signal handlers and finalizers may acquire and release in the middle of a step of their own thread."""

import signal
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import StoreError
from interlock.stores.sql.problems import Passing
from interlock.stores.sqlite import database as module
from interlock.stores.sqlite.database import Database
from interlock.stores.sqlite.line import Rows, SqliteStep, SqliteSteps
from interlock.stores.sqlite.options import Options
from interlock.testing.remote import Remote
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.support.moments import folder_of, in_time, interrupted

HERE = folder_of(module)
NOTHING = SqliteStep(lambda execute, clock: [])


def enter(name: str) -> SqliteStep:
    """A step that takes a free lock."""
    return SqliteSteps().enter(Claim(name * 32, LockSpec(f"\0{name}")), "try", "")


def ids(database: Database) -> list[Any]:
    """Whose claims the file has."""
    return [
        row[0]
        for row in database.perform(SqliteStep(lambda execute, clock: execute("SELECT id FROM claims").fetchall()))
    ]


@pytest.mark.parametrize("opened", [False, True], ids=["opening", "open"])
def test_a_handler_takes_a_lock_at_any_moment_of_a_step(tmp_path: Path, opened: bool) -> None:
    def run(at: int) -> bool:
        (tmp_path / f"{at}").mkdir()
        path = f"{tmp_path}/{at}/locks.db"
        database = Database(Options(path, f"{path}-0123456789ab", 4 * WAIT_LIMIT))
        if opened:
            database.perform(NOTHING)
        within: list[Rows] = []
        rows, struck = interrupted(
            lambda: database.perform(enter("a")), at, lambda: within.append(database.perform(enter("b"))), HERE
        )
        claims = ["a" * 32, "b" * 32] if struck else ["a" * 32]
        assert sorted(ids(database)) == claims, at
        assert [answer[0][0] for answer in (rows, *within)] == ["using"] * len(claims), at
        assert not database._line
        database.close()
        return struck

    at = 0
    while in_time(lambda at=at: run(at)):  # type: ignore[misc]
        at += 1
    assert at > 20


def test_a_handler_that_raises_leaves_nothing_of_the_step_and_the_mutex_free(options: Options) -> None:
    database = Database(options)
    database.perform(NOTHING)

    def strike() -> None:
        database.perform(enter("b"))
        raise KeyboardInterrupt

    def run(at: int) -> bool:
        try:
            interrupted(lambda: database.perform(enter("a")), at, strike, HERE)
        except KeyboardInterrupt:
            return True
        return False

    at = 0
    while in_time(lambda at=at: run(at)):  # type: ignore[misc]
        at += 1
        assert in_time(lambda: ids(database))  # from another thread
        database.perform(SqliteStep(lambda execute, clock: execute("DELETE FROM claims").fetchall()))
    assert at > 20
    database.close()


def test_a_signal_handler_releases_while_its_thread_waits_for_the_file(
    options: Options, remote: Callable[[], Remote], tmp_path: Path
) -> None:
    other, waits, handles = remote(), tmp_path / "waits", tmp_path / "handles"
    other.do(
        f"import pathlib, signal, threading, time\n"
        f"grant = locks.lock('held').acquire()\n"
        f"database = locks._session.store._server.database\n"
        f"def handler(*_):\n"
        f"    pathlib.Path({str(handles)!r}).touch()\n"
        f"    grant.release()\n"
        f"def watch():\n"
        f"    while not database._line: time.sleep(0.001)\n"
        f"    pathlib.Path({str(waits)!r}).touch()\n"
        f"signal.signal(signal.SIGUSR1, handler)"
    )
    blocker = sqlite3.connect(options.file, isolation_level=None)
    try:
        blocker.execute("BEGIN IMMEDIATE")
        other.start(
            "threading.Thread(target=watch, daemon=True).start()\n"
            "with locks.lock('other', timeout=10) as grants: result = [view.name for view in locks.claims()]"
        )
        eventually(waits.exists)
        other.signal(signal.SIGUSR1)
        eventually(handles.exists)
    finally:
        blocker.close()
    assert other.answer() == ["other"]


def test_a_step_whose_handler_forks_is_done_once_in_each_process(remote: Callable[[], Remote]) -> None:
    other = remote()
    done = other.do(
        "import os\n"
        "from interlock.stores.sqlite.line import SqliteStep\n"
        "calls, children = [], []\n"
        "def step(execute, clock):\n"
        "    calls.append(os.getpid())\n"
        "    if not children: children.append(os.fork())\n"
        "    execute('UPDATE machine SET ahead = ahead')\n"
        "    return [(len(calls),)]\n"
        "rows = locks._session.store._server.ask(SqliteStep(step))\n"
        "if not children[0]: os._exit(rows[0][0])\n"
        "result = rows[0][0], os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])"
    )
    assert done == [2, 2]  # a transaction of one process can't go on in another


def test_a_finalizer_inside_of_sqlite_is_refused_and_the_step_goes_on(options: Options) -> None:
    database = Database(options)
    database.perform(NOTHING)
    assert database._opened is not None
    errors: list[Exception] = []

    def finalizer() -> None:
        try:
            database.perform(enter("b"))
        except StoreError as error:
            errors.append(error)

    database._opened.connection.create_function("finalizer", 0, finalizer)

    def step(execute: Any, clock: Any) -> Any:
        rows = enter("a").function(execute, clock, *enter("a").args)
        execute("SELECT finalizer()").fetchall()
        return rows

    assert in_time(lambda: database.perform(SqliteStep(step)))[0][0] == "using"
    assert [type(error).__name__ for error in errors] == ["Refused"]
    assert "ask again later" in str(errors[0])
    assert ids(database) == ["a" * 32]
    database.close()


def test_a_step_that_is_stuck_is_an_error_of_the_others_in_time(options: Options) -> None:
    database = Database(options._replace(io_timeout=0.3))
    database.perform(NOTHING)
    begun, ended = threading.Event(), threading.Event()

    def stuck(execute: Any, clock: Any) -> Any:
        begun.set()
        ended.wait(4 * WAIT_LIMIT)
        return []

    def fails() -> str:
        with pytest.raises(Passing, match="other threads") as caught:
            database.perform(NOTHING)
        return str(caught.value)

    worker = threading.Thread(target=database.perform, args=(SqliteStep(stuck),))
    worker.start()
    try:
        assert begun.wait(WAIT_LIMIT)
        assert [in_time(fails) for _ in range(2)]  # the second one comes when nobody waits before it
        in_time(lambda: database.close() or "closed")
    finally:
        ended.set()
        worker.join()
    with pytest.raises(StoreError, match="connect again"):
        database.perform(NOTHING)
