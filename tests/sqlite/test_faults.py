"""Faults between a lock and its file, each with real files and processes."""

import contextlib
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.stores.sqlite import database
from interlock.testing.other_process import Remote, RemoteError
from interlock.testing.waiting import WAIT_LIMIT, eventually

Start = Callable[[], Remote]
Claims = Callable[[], str]
IN_A_STEP = """
import os, signal, sqlite3
database = sqlite3.connect({file!r}, isolation_level=None)
database.execute("BEGIN IMMEDIATE")
for number in range(3000):  # more than SQLite keeps in memory: it writes to the file before the commit
    database.execute("INSERT INTO line VALUES (?, ?)", (bytes(str(number), "ascii"), "x" * 1000))
open({mark!r}, 'w').close()
os.kill(os.getpid(), signal.{signal})
database.execute("ROLLBACK")
database.close()
"""


def healthy(file: str) -> bool:
    """Check the integrity of the file by a separate connection of SQLite."""
    with closing(sqlite3.connect(file)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])


def test_a_writer_killed_in_the_middle_of_a_step_changes_nothing(
    locks: Any, remote: Start, claims: Claims, tmp_path: Path
) -> None:
    grant, file = locks.lock("a").acquire(), claims()
    other = remote()
    size = os.stat(file).st_size
    other.start(IN_A_STEP.format(file=file, mark=str(tmp_path / "mark"), signal="SIGKILL"))
    assert other.process.wait(60) == -signal.SIGKILL
    assert os.stat(file).st_size > size  # it had begun to write to the file itself
    assert [view.id for view in locks.claims("a")] == [grant.id]
    assert healthy(file)
    assert grant.release() is True


def test_a_writer_that_is_stopped_is_waited_for(locks: Any, remote: Start, claims: Claims, tmp_path: Path) -> None:
    other, mark = remote(), tmp_path / "mark"
    other.start(IN_A_STEP.format(file=claims(), mark=str(mark), signal="SIGSTOP"))
    stat = Path(f"/proc/{other.process.pid}/stat")
    eventually(lambda: mark.exists() and stat.read_text().rpartition(")")[2].split()[0] == "T")
    with ThreadPoolExecutor() as pool:
        try:
            assert locks.lock("b").acquire(timeout=0.1) is None  # it is asked again within the deadline only
            waiting = pool.submit(locks.lock("b", timeout=15).acquire)
        finally:
            other.signal(signal.SIGCONT)
        assert waiting.result(30).release() is True
    other.answer()


def test_a_file_that_others_keep_locked_is_an_error_in_time(url: str, claims: Claims) -> None:
    with closing(sqlite3.connect(claims(), isolation_level=None)) as blocker, closing(Remote(url)) as other:
        other.do("grant = locks.lock('a').acquire()")
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(RemoteError, match="busy for 5 s"):
            other.do("grant.release()")
        blocker.execute("ROLLBACK")
        assert other.do("result = locks.lock('b').acquire().release()") is True


@pytest.mark.parametrize("replaced", [False, True])
def test_who_held_in_a_file_that_is_gone_hears_of_it(
    locks: Any, claims: Claims, tmp_path: Path, replaced: bool
) -> None:
    grant, file = locks.lock("a").acquire(), claims()
    if replaced:
        (tmp_path / "new").touch()
        os.replace(tmp_path / "new", file)
    else:
        os.unlink(file)
    with pytest.raises(StoreError, match="removed or replaced"):
        locks.lock("b").acquire()
    if replaced:
        os.unlink(file)
    with locks.lock("a") as later:  # in the new file
        assert later.fence > grant.fence
    assert grant.renew() is False
    assert grant.lost


def test_who_held_hears_of_it_when_all_files_are_removed(locks: Any, folder: Path, remote: Start) -> None:
    grant = locks.lock("a").acquire()
    for path in list(folder.iterdir()):
        path.unlink()
    assert remote().do("result = locks.lock('a').acquire(timeout=0).held")
    with pytest.raises(StoreError, match="removed or replaced"):
        locks.lock("b").acquire()
    assert grant.renew() is False


def test_a_folder_that_is_gone_is_an_error(locks: Any, folder: Path) -> None:
    locks.lock("a").acquire()
    os.rename(folder, f"{folder}.moved")
    for what in ("removed or replaced", "Create the folder"):
        with pytest.raises(StoreError, match=what):
            locks.lock("b").acquire(timeout=0)
    os.rename(f"{folder}.moved", folder)  # for the checks after the test


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
    assert locks.lock("a").acquire(timeout=10).release()


def test_a_signal_handler_during_a_step_is_refused(remote: Start) -> None:
    other = remote()
    seen = other.do(
        "import faulthandler, signal\n"
        "faulthandler.dump_traceback_later(15)\n"  # says where it hangs, if it does
        "seen, inner, ended = [], locks.lock('inner'), []\n"
        "def handler(*_):\n"
        "    try:\n"
        "        with inner: seen.append('had')\n"
        "    except interlock.StoreError as error:\n"
        "        seen.append('flag' if 'Set a flag' in str(error) else str(error))\n"
        "    if not ended: signal.setitimer(signal.ITIMER_PROF, 0.0007)\n"
        "signal.signal(signal.SIGPROF, handler)\n"
        "signal.setitimer(signal.ITIMER_PROF, 0.0005)\n"  # of its own time: on a busy machine, steps go on, too
        "fences = []\n"
        "while set(seen) < {'had', 'flag'} and len(fences) < 3000:\n"
        "    with locks.lock('outer') as grant: fences.append(grant.fence)\n"
        "ended.append(True)\n"
        "faulthandler.cancel_dump_traceback_later()\n"
        "result = sorted(set(seen)), fences == sorted(set(fences))"
    )
    assert seen == [["flag", "had"], True]


def test_an_interrupt_with_a_kept_traceback_blocks_no_thread(locks: Any) -> None:
    """A debugger, or the prompt of Python, keeps it; the interrupt comes at each call of the step in turn."""
    struck: list[KeyboardInterrupt] = []
    for number in count():
        calls = count()

        def strike(frame: FrameType, event: str, arg: object, number: int = number, calls: Any = calls) -> None:
            within = frame.f_code.co_filename in (database.__file__, contextlib.__file__)
            if event == "call" and within and next(calls) == number:
                raise KeyboardInterrupt

        sys.setprofile(strike)
        try:
            locks.claims("a")
            break
        except KeyboardInterrupt as error:
            struck.append(error)
        finally:
            sys.setprofile(None)
        other = threading.Thread(target=locks.claims, args=("a",), daemon=True)
        other.start()
        other.join(WAIT_LIMIT)
        assert not other.is_alive()
    assert struck
