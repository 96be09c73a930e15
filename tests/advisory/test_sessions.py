"""Each lock is a session of the server: waiting, loss and end of sessions, on both servers."""

import asyncio
import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import interlock
from interlock import StoreError
from interlock.testing.waiting import eventually, throughout
from tests.servers.proxy import Proxy
from tests.support.cli_processes import Process
from tests.support.client_actors import SYNC_AND_ASYNC, side
from tests.support.databases import somebody_on, url_of
from tests.support.tasks import cancelled

HOLDS = """
import sys, time, interlock
locks = interlock.connect(sys.argv[1])
grant = locks.lock("book", ttl=600).acquire()
print(grant.fence, flush=True)
time.sleep(60)
"""


def waiting(locks: Any, other: Any, pool: ThreadPoolExecutor, timeout: float = 20) -> "tuple[Future[Any], int]":
    """Let a thread wait for "book"; return the future of its grant, and its session."""
    found = pool.submit(locks.lock("book").acquire, timeout=timeout)
    (session,) = eventually(lambda: other.locks(granted=False))
    return found, session


def test_a_wait_that_ends_when_it_is_granted_leaves_nothing(locks: Any, other: Any) -> None:
    for number in range(40):
        other.lock("book")
        found: list[Any] = []

        def waits(found: list[Any] = found, number: int = number) -> None:
            found.append(locks.lock("book").acquire(timeout=0.03 + number * 0.0001))

        thread = threading.Thread(target=waits)
        started = time.monotonic()
        thread.start()
        while time.monotonic() < started + 0.03:
            pass  # busy waiting: sleep is not exact enough for this moment
        other.unlock("book")
        thread.join(20)
        if found[0] is not None:
            assert found[0].release()
        assert other.locks() == [], number
        assert other.locks(granted=False) == [], number


def test_a_wait_continues_after_its_statement_or_session_ended(locks: Any, other: Any) -> None:
    with ThreadPoolExecutor() as pool:
        other.lock("book")
        found, session = waiting(locks, other, pool)
        for end in (other.cancel, other.cancel, other.kill):
            (session,) = eventually(lambda: other.locks(granted=False))
            end(session)
            assert not found.done()
        eventually(lambda: other.locks(granted=False) not in ([], [session]))
        other.unlock("book")
        assert found.result(20).release()
        assert other.locks() == []


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_the_end_of_the_session_is_a_loss_and_told_soon(server: Any, other: Any, sync_or_async: str) -> None:
    told = threading.Event()
    with side(sync_or_async, url_of(server)) as one:
        # Its lease goes on for ten minutes.
        grant = one.do(one.locks.lock("book", ttl=600, on_lost=lambda _: told.set()).acquire)
        kill_all(other)
        assert told.wait(5)
        assert grant.lost
        again = one.take("book", timeout=5)
        assert again.fence > grant.fence
        assert one.do(again.release)


def kill_all(other: Any) -> None:
    """End all sessions that have a lock."""
    for session in other.locks():
        other.kill(session)


def test_the_loss_of_one_lock_is_not_that_of_another(locks: Any, other: Any) -> None:
    with locks.lock("book") as kept:
        (session,) = other.locks()
        lost = locks.lock("page").acquire()
        other.kill(next(each for each in other.sessions() if each != session))
        eventually(lambda: lost.lost)
        assert kept.renew()


def test_a_killed_process_frees_its_locks_at_once(server: Any, locks: Any) -> None:
    command = [sys.executable, "-W", "ignore", "-c", HOLDS, url_of(server)]
    with Process(command, stdout=subprocess.PIPE, text=True) as holder:
        fence = int(holder.read_line())
        assert locks.lock("book").acquire(blocking=False) is None
        holder.kill()
        grant = locks.lock("book").acquire(timeout=10)
        assert grant.fence > fence
        grant.release()


@pytest.mark.parametrize("fork", [os.fork, lambda: ctypes.PyDLL(None).fork()], ids=["fork", "without hooks"])
def test_a_forked_child_ends_and_uses_no_session_of_its_parent(
    locks: Any, other: Any, fork: Callable[[], int]
) -> None:
    locks.lock("free").acquire().release()  # an idle session, which the child finds
    with locks.lock("book") as grant:
        before = other.sessions()
        child = fork()
        if not child:
            code = 1
            try:
                mine = locks.lock("mine").acquire()
                kept = locks.lock("book").acquire(blocking=False) is None and mine.release()
                code = 0 if kept and not grant.held else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert grant.renew()
        assert set(before) <= set(other.sessions())
        assert locks.lock("free").acquire(blocking=False).release()


def test_sessions_are_few_and_who_finds_none_waits_for_one(server: Any, other: Any) -> None:
    with interlock.connect(url_of(server, "?max_sessions=4")) as locks, ThreadPoolExecutor(20) as pool:
        names = [f"name {number}" for number in range(6)]
        for name in names:
            other.lock(name)

        def enters(name: str) -> bool:
            with locks.lock(name, timeout=60) as grant:
                return grant.held

        crowd = [pool.submit(enters, name) for name in names]
        eventually(lambda: len(locks.claims()) == len(names))
        eventually(lambda: len(other.locks(granted=False)) == 2)  # half of the sessions wait
        held = [locks.lock(f"mine {number}").acquire(timeout=0) for number in range(2)]
        with pytest.raises(StoreError, match="max_sessions"):
            locks.lock("one more").acquire(blocking=False)
        assert len(other.sessions()) <= 4
        assert all(grant.release() for grant in held)
        for name in names:
            other.unlock(name)
        for each in crowd:
            assert each.result(60)
        assert other.locks() == []


def test_waiters_of_one_process_get_the_lock_in_arrival_order(server: Any, other: Any) -> None:
    with interlock.connect(url_of(server)) as locks, interlock.connect(url_of(server)) as more:
        other.lock("book")
        order: list[int] = []

        def enters(mine: Any, number: int) -> None:
            with mine.lock("book"):
                order.append(number)

        threads = []
        for number, mine in enumerate([locks, more] * 4):
            threads.append(threading.Thread(target=enters, args=(mine, number)))
            threads[-1].start()
            eventually(lambda number=number: len(locks.claims("book")) == number + 2)
        assert locks.lock("book").acquire(blocking=False) is None
        other.unlock("book")
        for thread in threads:
            thread.join(20)
        assert order == list(range(8))


def test_sessions_of_other_processes_are_shown_not_evicted(locks: Any, other: Any, server: Any) -> None:
    other.lock("book")
    third = somebody_on(server)
    waits = threading.Thread(target=third.lock, args=("book",))
    waits.start()
    eventually(lambda: other.locks(granted=False))
    shown = [(view.id, view.state) for view in locks.claims("book")]
    assert shown == [(f"session {other.number}", "using"), (f"session {third.number}", "pending")]
    with pytest.raises(StoreError, match=f"(pg_terminate_backend.|KILL ){other.number}"):
        locks.evict("book")
    other.unlock("book")
    waits.join(20)
    third.close()


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_a_cancelled_wait_leaves_its_session_to_the_next(server: Any, other: Any, sync_or_async: str) -> None:
    with side(sync_or_async, url_of(server)) as one:
        other.lock("book")
        for _ in range(5):
            cancel = interlock.Cancel()
            waits = one.waits("book", cancel=cancel)
            eventually(lambda: other.locks(granted=False))
            cancel.set()
            assert waits.result(20) is None
            assert other.locks(granted=False) == []
        assert len(other.sessions()) <= 3
        other.unlock("book")


def test_a_cancelled_task_leaves_its_session_to_the_next(server: Any, other: Any) -> None:
    async def play() -> None:
        async with interlock.aconnect(url_of(server)) as locks:
            task = asyncio.ensure_future(locks.lock("book").acquire())
            await asyncio.to_thread(eventually, lambda: other.locks(granted=False))
            await cancelled(task)
            assert other.locks(granted=False) == []

    other.lock("book")
    for _ in range(5):
        asyncio.run(play())
    assert len(other.sessions()) <= 3
    other.unlock("book")


MANY, TTL, SLOW = 12, 2.0, 0.3  # locks, seconds, and seconds for an answer: one after another they take too long


def through(proxy: Proxy, server: Any) -> str:
    """Return the URL of a server behind a proxy."""
    scheme = server.url.partition(":")[0]
    return f"{scheme}+advisory://{server.user}@{proxy.host}:{proxy.port}/{server.database}"


@pytest.mark.parametrize("sync_or_async", SYNC_AND_ASYNC)
def test_many_leases_are_renewed_in_time_on_a_slow_server(server: Any, sync_or_async: str) -> None:
    with Proxy(server.host, server.port) as proxy, side(sync_or_async, through(proxy, server)) as one:
        grants = [one.do(one.locks.lock(f"book {number}", ttl=TTL).acquire) for number in range(MANY)]
        proxy.delay(SLOW)
        throughout(2.5 * TTL, lambda: [grant.lost for grant in grants] == [False] * MANY)


def test_the_server_is_killed_and_fences_increase(own_server: Any) -> None:
    fences = []
    with interlock.connect(url_of(own_server)) as locks:
        for _ in range(3):
            for _ in range(20):
                with locks.lock("book", timeout=20) as grant:
                    fences.append(grant.fence)
            held = locks.lock("held").acquire()
            own_server.kill()
            own_server.start()
            eventually(lambda held=held: held.lost)
    assert fences == sorted(set(fences))


def test_a_waiter_goes_on_while_the_server_is_away(own_server: Any) -> None:
    other = somebody_on(own_server)
    with interlock.connect(url_of(own_server)) as locks, ThreadPoolExecutor() as pool:
        other.lock("book")
        found, _ = waiting(locks, other, pool, timeout=60)
        own_server.kill()
        other.close()
        throughout(0.5, lambda: not found.done())
        own_server.start()
        assert found.result(30).release()


def test_connections_on_which_nothing_is_said_are_kept_alive(server: Any, other: Any) -> None:
    with interlock.connect(url_of(server)) as locks, locks.lock("book"):
        found = []
        for name in os.listdir("/proc/self/fd"):
            if not os.path.realpath(f"/proc/self/fd/{name}").rpartition("/")[2].startswith("socket:"):
                continue  # a copy of another descriptor would stay open, also of the pipe whose end stops a server
            with suppress(OSError), socket.socket(fileno=os.dup(int(name))) as connection:
                if connection.getpeername()[:2] == (server.host, server.port):
                    found.append([connection.getsockopt(socket.IPPROTO_TCP, each) for each in KEPT_ALIVE])
        assert found.count([15, 5, 3, 20_000]) == len(other.sessions())


KEPT_ALIVE = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT, socket.TCP_USER_TIMEOUT)
