"""Fork and other children: a child owns none of its parent's locks, and does not keep them held."""

import os
import signal
from contextlib import closing

import pytest

import interlock
from interlock.testing.other_process import Remote
from interlock.testing.store_fixture import StoreFixture
from interlock.testing.waiting import RENEWED, eventually, throughout
from tests.process.conftest import FREES_AT_DEATH, Start
from tests.support.stores import ROWS

CHILD_LOCKS = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.name != "s3" and row.reaches_processes and not row.twin], indirect=True,
    ids=lambda row: row.name,
)  # fmt: skip
"""Stores that a child can use though its parent did; on the other it is told: see tests/bucket."""
SOON = 3.0  # seconds; a waiter without a notification polls after five

HOLD = """
lock = locks.lock('book', ttl={ttl})
grant = lock.acquire()
rlock = locks.rlock('shelf')
again = rlock.acquire()
"""

IN_CHILD = """
import os, json, warnings
warnings.simplefilter("ignore", DeprecationWarning)
def in_child(work):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = json.dumps(work())
        except BaseException as error:
            told = json.dumps(f"{type(error).__name__}: {error}")
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    return told
"""


def holder_of(remote: Start, ttl: float = 30) -> Remote:
    """Return a process that holds two locks and can fork."""
    holder = remote()
    holder.do(HOLD.format(ttl=ttl))
    holder.do(IN_CHILD)
    return holder


def is_held(holder: Remote, locks: interlock.Locks) -> bool:
    """Tell whether the holder still has its lock, according to itself and to another connection."""
    return holder.do("result = grant.held") is True and locks.lock("book").acquire(timeout=0) is None


def test_a_child_owns_nothing(locks: interlock.Locks, remote: Start) -> None:
    holder = holder_of(remote)
    told = holder.do(
        "result = in_child(lambda: [grant.lost, grant.held, grant.inherited, lock.owned(), rlock.owned(), "
        "grant.expires_in])"
    )
    assert told == [True, False, True, False, False, 0]
    assert is_held(holder, locks)


def test_what_a_child_releases_is_not_released(locks: interlock.Locks, remote: Start) -> None:
    holder = holder_of(remote)
    assert holder.do("result = in_child(lambda: [grant.release(), again.release(), grant.renew()])") == [False] * 3
    assert holder.do("result = in_child(lock.release)").startswith("NotHeld")
    assert holder.do("result = in_child(grant.check)").startswith("LockLost")
    assert is_held(holder, locks)
    assert holder.do("result = [grant.release(), again.release()]") == [True, True]


@CHILD_LOCKS
def test_a_child_can_lock_for_itself(locks: interlock.Locks, remote: Start) -> None:
    holder = holder_of(remote)
    told = holder.do(
        "def work():\n"
        "    with locks.lock('other') as own: return [own.fence > 0, own.held, own.inherited]\n"
        "result = in_child(work)"
    )
    assert told == [True, True, False]
    assert is_held(holder, locks)


def test_the_end_of_a_child_releases_nothing(locks: interlock.Locks, remote: Start) -> None:
    holder = holder_of(remote)
    holder.do(
        "import atexit, gc\n"
        "def drop():\n"
        "    global grant, lock, locks, again, rlock\n"
        "    del grant, lock, locks, again, rlock\n"
        "    gc.collect()"
    )
    for end in ("None", "gc.collect()", "atexit._run_exitfuncs()", "locks.close()", "drop()"):
        holder.do(f"in_child(lambda: {end})")
        assert is_held(holder, locks), end
    assert holder.do("result = grant.release()") is True


def test_a_body_keeps_its_lock_when_a_forked_child_leaves_it(locks: interlock.Locks, remote: Start) -> None:
    holder = remote()
    holder.do(IN_CHILD)
    told = holder.do(
        "def leave():\n"
        "    return [lock.__exit__(None, None, None), grant.lost, grant.held]\n"
        "result = []\n"
        "for lock in (locks.lock('book'), locks.rlock('book'), locks.all('book', 'shelf')):\n"
        "    with lock as grant:\n"
        "        of_child = in_child(leave)\n"
        "        held = interlock.connect(url).lock('book').acquire(timeout=0) is None\n"
        "        result.append([of_child, grant.held, held])"
    )
    # the child leaves it without an error: the lock is not its own
    assert told == [[[None, True, False], True, True]] * 3
    assert locks.claims() == []


@CHILD_LOCKS
def test_a_stack_of_a_child_ends_its_own_beside_an_inherited_one(remote: Start) -> None:
    holder = remote()
    holder.do(IN_CHILD)
    held = holder.do(
        "from contextlib import ExitStack\n"
        "def own():\n"
        "    with ExitStack() as inner:\n"
        "        mine = inner.enter_context(lock)\n"
        "    return [mine.held, grant.held]\n"
        "lock = locks.semaphore('book', 2)\n"
        "with ExitStack() as stack:\n"
        "    grant = stack.enter_context(lock)\n"
        "    result = [in_child(own), grant.held, len(locks.claims())]"
    )
    assert held == [[False, False], True, 1]


def test_the_lease_is_renewed_by_the_parent_after_a_fork(locks: interlock.Locks, remote: Start) -> None:
    holder = holder_of(remote, ttl=RENEWED)
    holder.do("in_child(lambda: None)")
    throughout(RENEWED + 0.5, lambda: locks.lock("book").acquire(timeout=0) is None)
    assert holder.do("result = grant.held") is True


@pytest.mark.parametrize(
    "child",
    [
        "child = os.fork()\nif child == 0: time.sleep(60); os._exit(0)",
        "child = subprocess.Popen(['sleep', '60'], close_fds=False).pid",
        "child = subprocess.Popen(['sleep', '60'], close_fds=False, start_new_session=True).pid",
    ],
    ids=["fork", "subprocess", "subprocess in a session of its own"],
)
@FREES_AT_DEATH
def test_a_surviving_child_does_not_keep_its_dead_parents_lock(
    place: StoreFixture, locks: interlock.Locks, remote: Start, child: str
) -> None:
    holder = holder_of(remote, ttl=30 if place.frees_at_death else 2)
    holder.do("import os, subprocess, time, warnings\nwarnings.simplefilter('ignore')")
    pid = holder.do(f"{child}\nresult = child")
    try:
        holder.process.kill()
        holder.process.wait(20)
        os.kill(pid, 0)  # it lives
        assert locks.lock("book").acquire(timeout=8) is not None
    finally:
        os.kill(pid, signal.SIGKILL)


def test_a_waiter_that_forks_still_gets_its_turn(locks: interlock.Locks, remote: Start) -> None:
    waiter = remote()
    waiter.do(IN_CHILD)
    held = locks.lock("book").acquire()
    waiter.do(
        "import threading\n"
        "got = []\n"
        "thread = threading.Thread(target=lambda: got.append(locks.lock('book').acquire()))\n"
        "thread.start()"
    )
    eventually(lambda: len(locks.claims("book")) == 2)
    waiter.do("in_child(lambda: None)")
    held.release()
    assert waiter.do("thread.join(20); result = got[0].held") is True


@CHILD_LOCKS
def test_a_forked_child_has_its_own_pid_and_is_notified(locks: interlock.Locks, remote: Start) -> None:
    waiter = remote()
    waiter.do(IN_CHILD)
    lock = locks.lock("book")
    held = lock.acquire()
    waiter.start("lock = locks.lock('book', timeout=20)\nwith lock: pass")  # now it knows how to wait, and to leave
    eventually(lambda: len(locks.claims("book")) == 2)
    held.release()
    waiter.answer()
    held = lock.acquire()
    waiter.start(
        "import os\n"
        "def waits():\n"
        "    with lock: return [view.pid == os.getpid() for view in locks.claims('book')]\n"
        "result = in_child(waits)"
    )
    eventually(lambda: len(locks.claims("book")) == 2)
    assert waiter.process.pid not in [view.pid for view in locks.claims("book")]
    held.release()
    assert waiter.answer(within=SOON) == [True]


@CHILD_LOCKS
def test_a_waiter_hears_when_a_child_of_its_process_releases(locks: interlock.Locks, remote: Start) -> None:
    parent = remote()
    child = parent.do(
        "import os, threading, warnings\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "lock = locks.lock('book')\n"
        "with lock: pass\n"  # now it knows how to leave
        "word, say = os.pipe()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    grant = lock.acquire()\n"
        "    os.read(word, 1)\n"
        "    grant.release()\n"
        "    os._exit(0)\n"
        "result = child"
    )
    eventually(lambda: [view.pid for view in locks.claims("book")] == [child])
    parent.do("got = []\nthread = threading.Thread(target=lambda: got.append(lock.acquire()))\nthread.start()")
    eventually(lambda: len(locks.claims("book")) == 2)
    told = parent.do(f"os.write(say, b'.')\nthread.join({SOON})\nresult = len(got)\nos.waitpid(child, 0)")
    assert told == 1
    parent.do("thread.join(20)\ngot[0].release()")


def test_a_child_forked_during_a_step_can_lock_in_memory() -> None:
    with closing(Remote("memory://")) as parent:
        parent.do(IN_CHILD)
        told = parent.do(
            "import signal, threading\n"
            "import sys\n"
            "grant = locks.lock('book').acquire()\n"
            "over = threading.Event()\n"
            "sys.setswitchinterval(1e-6)\n"  # at most forks the thread is somewhere in a step
            "def steps():\n"
            "    while not over.is_set(): locks.lock('shelf').acquire().release()\n"
            "thread = threading.Thread(target=steps)\n"
            "thread.start()\n"
            "def work():\n"
            "    signal.alarm(10)\n"  # else it would hang for ever
            "    with locks.lock('book', timeout=5) as own: return own.held\n"
            "result = [in_child(work) for _ in range(20)]\n"
            "over.set()\n"
            "thread.join()"
        )
        assert told == [True] * 20
        assert parent.do("result = grant.release()") is True
