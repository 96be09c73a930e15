"""Programs that exit while they hold locks or wait: no claim of theirs stays, and no waiter gets in too early."""

import subprocess
import sys

import pytest

import interlock
from interlock.testing.store_fixture import ContractWorld, StoreFixture
from interlock.testing.waiting import lasting, throughout
from tests.process.conftest import Start
from tests.servers import EtcdServer, RedisServer, need
from tests.support.cli_processes import Process

TTL = 30
SOON = 5.0  # seconds, on a busy machine; far less than the lease

ENDS_LATE = """
import atexit, sys, time
atexit.register(lambda: (print("ending", flush=True), time.sleep(1.0)))  # runs after what interlock does at exit
"""

HOLDS_IN_A_DAEMON = """
import interlock, threading
locks = interlock.connect(sys.argv[1])
inside = threading.Event()
def work():
    with locks.lock("book", ttl={ttl}):
        inside.set()
        while True:
            time.sleep(0.01)
threading.Thread(target=work, daemon=True, name="worker").start()
inside.wait()
"""

WAITS_IN_DAEMONS = """
import sys, threading, time, interlock
locks = interlock.connect(sys.argv[1])
other = locks.lock("other", ttl={ttl}).acquire()
for number in range(3):
    threading.Thread(target=locks.lock("book", ttl={ttl}).acquire, daemon=True).start()
    while len([view for view in locks.claims("book") if view.state == "pending"]) <= number:
        time.sleep(0.005)
"""


def program(text: str, url: str, **how: object) -> Process:
    """Start a program that exits by itself."""
    text = text.format(**how) if how else text
    return Process(
        [sys.executable, "-c", text, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_nobody_gets_in_while_a_daemon_thread_still_works(
    place: StoreFixture, locks: interlock.Locks, url: str
) -> None:
    with program(ENDS_LATE + HOLDS_IN_A_DAEMON.replace("{ttl}", "2"), url) as ending:
        assert ending.read_line() == "ending"
        throughout(0.7, lambda: locks.lock("book").acquire(timeout=0) is None)
        assert ending.poll() is None, "it has ended too early for this test"
        status, _, told = ending.ended()
    assert status == 0
    assert ("1 lock(s) were not released" in told) == (not place.frees_at_death)
    assert locks.lock("book").acquire(timeout=SOON) is not None


def test_those_who_wait_in_daemon_threads_leave_no_ghost(locks: interlock.Locks, url: str) -> None:
    held = locks.lock("book").acquire()
    with program(WAITS_IN_DAEMONS, url, ttl=TTL) as ending:
        status, _, told = ending.ended()
        assert status == 0, told
    with lasting(0.0, SOON):
        assert [view.id for view in locks.claims("book")] == [held.id]
        held.release()
        assert locks.lock("book").acquire(timeout=SOON) is not None
        assert locks.lock("other").acquire(timeout=SOON) is not None


def test_what_a_thread_held_that_has_ended_is_released_at_exit(locks: interlock.Locks, remote: Start) -> None:
    holder = remote()
    holder.do(
        "import threading\n"
        "grants = []\n"
        f"thread = threading.Thread(target=lambda: grants.append(locks.lock('book', ttl={TTL}).acquire()))\n"
        "thread.start(); thread.join()"
    )
    assert holder.end() == 0
    assert locks.lock("book").acquire(timeout=SOON) is not None


def test_what_was_dropped_without_a_release_is_released_at_exit(locks: interlock.Locks, remote: Start) -> None:
    holder = remote()
    holder.do("import gc\ndef drop(): interlock.connect(url).lock('book', ttl=30).acquire()\ndrop(); gc.collect()")
    assert locks.claims("book")
    assert holder.end() == 0
    assert locks.lock("book").acquire(timeout=SOON) is not None


# -- asyncio --------------------------------------------------------------------------------------------

ASYNC = """
import asyncio, sys, time, interlock
alocks = interlock.aconnect(sys.argv[1])
"""

TWO_LOOPS = """
async def main(name):
    return await alocks.lock(name).acquire()
kept = [asyncio.run(main(name)) for name in ("book", "another", "a third")]
"""


@pytest.mark.parametrize("outage", ["kill", "pause"])
@pytest.mark.parametrize("kind", ["valkey", "etcd"])
def test_a_program_that_ends_while_its_server_is_away_ends_soon(kind: str, outage: str) -> None:
    need(kind)
    text = (
        ASYNC
        + TWO_LOOPS
        + "locks = interlock.connect(sys.argv[1])\n"
        + "more = [locks.lock(str(number)).acquire() for number in range(20)]\n"
        + "for number in range(5): locks.lock(f'dropped {number}').acquire()\n"
        + "print('ready', flush=True); sys.stdin.read(1)"
    )
    with EtcdServer() if kind == "etcd" else RedisServer(kind) as server, program(text, server.url) as ends:
        assert ends.read_line() == "ready"
        getattr(server, outage)()
        with lasting(0.0, 10.0):
            assert ends.ended()[0] == 0
        if outage == "pause":
            server.resume()


def test_close_hands_over_though_own_waiters_come_first(world: ContractWorld, remote: Start) -> None:
    holder = remote()
    holder.do(
        "import threading\n"
        f"lock = locks.lock('book', ttl={TTL}); grant = lock.acquire()\n"
        "errors = []\n"
        "def wait():\n"
        "    try: lock.acquire()\n"
        "    except interlock.StoreError as error: errors.append(str(error))\n"
        "threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]\n"
        "for thread in threads: thread.start()"
    )
    world.until_waiting(3, "book")
    job = world.in_line(world.actor().start, world.connect().lock("book").acquire)
    holder.do("locks.close()\nfor thread in threads: thread.join(5)")
    assert job.result(SOON) is not None
    assert holder.do("result = len(errors)") == 3
