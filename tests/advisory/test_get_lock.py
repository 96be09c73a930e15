"""What goes wrong with GET_LOCK elsewhere, on a real MariaDB."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymysql
import pytest

import interlock
from interlock import InvalidArgument, StoreError
from interlock.stores.advisory import mysql, room
from interlock.stores.advisory.mysql import MysqlSession
from interlock.stores.advisory.mysqlopening import _check
from interlock.stores.advisory.options import SEQUENCE
from interlock.stores.advisory.places import number_of
from interlock.testing.waiting import eventually
from tests.servers import MariaServer, need

NAME = f"interlock_{number_of(chr(0) + 'book') & (1 << 64) - 1:016x}"


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """A server."""
    need("mariadb")
    with MariaServer() as server:
        yield server


def url_of(server: MariaServer) -> str:
    """The URL."""
    return server.url.replace(":", "+advisory:", 1)


@pytest.fixture
def locks(server: MariaServer) -> Iterator[Any]:
    """Locks."""
    with interlock.connect(url_of(server)) as locks:
        yield locks


class Other:
    """Somebody else, with plain SQL."""

    def __init__(self, server: MariaServer) -> None:
        self.connection = pymysql.connect(host=server.host, port=server.port, user=server.user, autocommit=True)

    def __call__(self, sql: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)
            row = cursor.fetchone()
        return None if row is None else row[0]

    def waiter(self) -> int | None:
        """The connection that waits in GET_LOCK."""
        return self("SELECT id FROM information_schema.processlist WHERE state = 'User lock'")


@pytest.fixture
def other(server: MariaServer) -> Iterator[Other]:
    """Somebody else."""
    other = Other(server)
    yield other
    other.connection.close()


def test_a_wait_that_ends_when_it_is_granted_leaves_nothing(locks: Any, other: Other) -> None:
    for number in range(40):
        assert other(f"SELECT GET_LOCK('{NAME}', 5)") == 1
        found: list[Any] = []

        def waits(found: list[Any] = found, number: int = number) -> None:
            found.append(locks.lock("book").acquire(timeout=0.03 + number * 0.0001))

        thread = threading.Thread(target=waits)
        started = time.monotonic()
        thread.start()
        while time.monotonic() < started + 0.03:
            pass  # sleep is not exact enough to hit the moment
        other(f"SELECT RELEASE_LOCK('{NAME}')")
        thread.join(20)
        if found[0] is not None:
            assert found[0].release()
        assert other(f"SELECT IS_FREE_LOCK('{NAME}')") == 1, number


def test_a_wait_that_somebody_kills_goes_on(locks: Any, other: Other) -> None:
    assert other(f"SELECT GET_LOCK('{NAME}', 5)") == 1
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(locks.lock("book").acquire(timeout=20)))
    thread.start()
    for word in ("QUERY", "QUERY", "CONNECTION"):
        waiter = eventually(other.waiter)
        other(f"KILL {word} {waiter}")
        assert not found
    eventually(other.waiter)
    other(f"SELECT RELEASE_LOCK('{NAME}')")
    thread.join(20)
    assert found[0].release()
    assert other(f"SELECT IS_FREE_LOCK('{NAME}')") == 1


def test_who_waits_holds_up_no_backup(locks: Any, other: Other, server: MariaServer) -> None:
    """What a backup locks waits for statements that use tables; who writes would wait behind it."""
    locks.lock("another").acquire().release()
    assert other(f"SELECT GET_LOCK('{NAME}', 5)") == 1
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(locks.lock("book").acquire, timeout=60)
        eventually(other.waiter)
        backup = Other(server)
        backup("SET SESSION lock_wait_timeout = 5")
        backup("FLUSH TABLES WITH READ LOCK")
        backup.connection.close()
        assert not waiting.done()
        other(f"SELECT RELEASE_LOCK('{NAME}')")
        assert waiting.result(20).release()


def test_who_waits_in_another_process_is_shown(locks: Any, other: Other, server: MariaServer) -> None:
    assert other(f"SELECT GET_LOCK('{NAME}', 5)") == 1
    waiter = Other(server)
    thread = threading.Thread(target=waiter, args=(f"SELECT GET_LOCK('{NAME}', 20)",))
    thread.start()
    eventually(other.waiter)
    shown = [(view.id, view.state) for view in locks.claims("book")]
    numbers = [each.connection.thread_id() for each in (other, waiter)]
    assert shown == [(f"session {numbers[0]}", "using"), (f"session {numbers[1]}", "pending")]
    other(f"SELECT RELEASE_LOCK('{NAME}')")
    thread.join(20)
    waiter.connection.close()


def test_the_end_of_the_session_is_a_loss_and_told_at_once(locks: Any, other: Other) -> None:
    told = threading.Event()
    grant = locks.lock("book", ttl=600, on_lost=lambda _: told.set()).acquire()
    other(f"KILL CONNECTION {other(f'SELECT IS_USED_LOCK({NAME!r})')}")
    assert told.wait(20)
    assert grant.lost
    with locks.lock("book", timeout=5) as again:
        assert again.fence > grant.fence


def test_a_connection_on_which_nothing_is_said_is_kept_alive(locks: Any) -> None:
    locks.lock("book").acquire().release()
    (session,) = locks._session.store._room.sessions
    with socket.socket(fileno=os.dup(session.socket)) as connection:
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_doctor_tells_when_the_locks_of_a_dead_machine_are_free(server: MariaServer, locks: Any) -> None:
    checks = {check.name: check for check in locks.doctor()}
    assert checks["dead machine"].status == "warn"
    assert "tcp_keepalive_time = 15" in checks["dead machine"].detail
    soon = {"tcp-keepalive-time": "15", "tcp-keepalive-interval": "5", "tcp-keepalive-probes": "3"}
    with MariaServer(config=soon) as kept, interlock.connect(url_of(kept)) as locks:
        checks = {check.name: check for check in locks.doctor()}
    assert checks["dead machine"].status == "ok"
    assert "30 s" in checks["dead machine"].detail


def test_time_limits_of_the_server_free_nothing_and_end_no_wait(server: MariaServer, other: Other) -> None:
    with MariaServer(config={"wait-timeout": "1", "max-statement-time": "1"}) as strict:
        mine = Other(strict)
        mine("SET SESSION wait_timeout = 600, max_statement_time = 0")
        with interlock.connect(url_of(strict)) as locks, locks.lock("held") as grant:
            assert mine(f"SELECT GET_LOCK('{NAME}', 5)") == 1
            found: list[Any] = []
            thread = threading.Thread(target=lambda: found.append(locks.lock("book").acquire(timeout=20)))
            thread.start()
            waiter = eventually(mine.waiter)
            time.sleep(3)  # what must not happen within three of the limits
            assert mine.waiter() == waiter
            mine(f"SELECT RELEASE_LOCK('{NAME}')")
            thread.join(20)
            assert found[0].release()
            assert grant.renew()
        mine.connection.close()


def test_names_that_differ_in_case_are_different_and_locks_do_not_stack(locks: Any) -> None:
    with locks.lock("Book"), locks.lock("book", timeout=0):
        assert locks.lock("Book").acquire(blocking=False) is None
        assert locks.lock("book").acquire(blocking=False) is None
    assert locks.lock("book").acquire(blocking=False).release()


def test_other_kinds_and_transactions_are_refused(locks: Any) -> None:
    for lock in (locks.rwlock("book").read(), locks.rwlock("book").write(), locks.semaphore("book", 2)):
        with pytest.raises(InvalidArgument, match="exclusive"):
            lock.acquire()
    with pytest.raises(InvalidArgument, match="survives the commit"):
        locks.lock("book", connection=object())


@pytest.mark.parametrize(
    ("answers", "match"),
    [
        ({"VERSION": "8.0.30-Vitess"}, "Vitess"),
        ({"VERSION": "8.4.2"}, "is not MariaDB"),
        ({"VERSION": "10.11-MariaDB", "wsrep": "ON"}, "Galera"),
    ],
)
def test_servers_whose_locks_are_not_for_all_are_refused(answers: dict[str, str], match: str) -> None:
    class Server:
        """Says what such a server says; none of them can be started here."""

        def rows(self, sql: str) -> list[list[str]]:
            if "VERSION" in sql:
                return [[answers["VERSION"]]]
            return [["wsrep_on", answers["wsrep"]]] if "wsrep" in answers else []

    with pytest.raises(StoreError, match=match):
        _check(Server())  # type: ignore[arg-type]


def test_a_read_only_server_is_refused() -> None:
    with MariaServer(config={"read-only": "1"}) as server, interlock.connect(url_of(server)) as locks:
        with pytest.raises(StoreError, match="read-only"):
            locks.lock("book").acquire()


HOLDS = """
import sys, time, interlock
locks = interlock.connect(sys.argv[1])
print(locks.lock("book", ttl=600).acquire().fence, flush=True)
time.sleep(60)
"""


def test_a_killed_process_frees_its_locks_at_once(server: MariaServer, locks: Any) -> None:
    holder = subprocess.Popen([sys.executable, "-W", "ignore", "-c", HOLDS, url_of(server)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    fence = int(holder.stdout.readline())
    assert locks.lock("book").acquire(blocking=False) is None
    holder.kill()
    grant = locks.lock("book").acquire(timeout=10)
    assert grant.fence > fence
    grant.release()
    holder.communicate()


def test_fences_increase_though_the_server_is_killed_again_and_again(server: MariaServer) -> None:
    fences = []
    try:
        for _ in range(3):
            with interlock.connect(url_of(server)) as locks:
                for _ in range(20):
                    with locks.lock("page", timeout=20) as grant:
                        fences.append(grant.fence)
                server.kill()
            server.start()
    finally:
        if not server.running:
            server.start()
    assert fences == sorted(set(fences))


def test_fences_leap_where_the_clock_was_set_back(server: MariaServer, other: Other) -> None:
    with interlock.connect(url_of(server)) as locks, locks.lock("page") as grant:
        ahead = grant.fence + 10**12
    other(f"SELECT SETVAL(interlock.{SEQUENCE}, {ahead})")
    with interlock.connect(url_of(server)) as locks, locks.lock("page") as grant:
        assert grant.fence > ahead + 10**6


def test_a_waiter_without_privileges_is_seen_in_line_or_left_alone(
    server: MariaServer, locks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An anonymous account is shown its own connections only; behind some poolers not even those have its numbers."""
    admin = Other(server)
    admin("GRANT ALL ON *.* TO ''@'127.0.0.1' IDENTIFIED BY ''")
    admin("REVOKE PROCESS ON *.* FROM ''@'127.0.0.1'")
    asked: list[str] = []
    standing = MysqlSession.standing

    def ask(self: MysqlSession, waiting: Any, key: int) -> Any:
        asked.append(standing(self, waiting, key))
        return asked[-1]

    monkeypatch.setattr(MysqlSession, "standing", ask)
    monkeypatch.setattr(room, "UNHEARD", 0.05)
    holder = locks.lock("book").acquire()
    url = url_of(server).replace("root@", "somebody@")
    with interlock.connect(url) as anonymous, ThreadPoolExecutor(1) as threads:
        waits = threads.submit(anonymous.lock("book").acquire, timeout=60)
        eventually(lambda: len(asked) > 3)
        assert {*asked} == {"waits"}
        monkeypatch.setattr(mysql, "STANDING", mysql.STANDING + " HAVING FALSE")  # nothing is shown
        eventually(lambda: asked.count("unknown") > 3)
        (session,) = anonymous._session.store._room.sessions.apart
        assert session.waits_for is not None
        holder.release()
        assert waits.result(30).release()
