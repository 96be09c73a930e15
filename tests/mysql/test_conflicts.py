"""Other sessions lock a name's row, or kill the statement: the step is tried again, and loses nothing."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

import interlock
from interlock.stores.mysql import lines
from interlock.testing.waiting import eventually
from tests.mysql.conftest import Ask, table_of


def digest_of(key: str) -> bytes:
    """Return the digest that the table stores for a key."""
    return sha256(key.encode()).digest()


KEY = digest_of("\0a")
BUSY = "SELECT ID FROM information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND INFO LIKE %s"
WAITING = "SELECT trx_mysql_thread_id FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"


class Spied:
    """The numbers of the server's errors, and a function to call between two statements of a step."""

    def __init__(self) -> None:
        self.refusals: list[str] = []
        self.before: Callable[[str], object] = lambda statement: None


@pytest.fixture
def waits_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a wait for a row take up to 20 s, so that it does not end early on a busy machine."""
    longer = lines.SESSION_STATEMENT.replace("innodb_lock_wait_timeout = 1", "innodb_lock_wait_timeout = 20")
    monkeypatch.setattr(lines, "SESSION_STATEMENT", longer)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    """All statements of this process."""
    spied, exchange = Spied(), lines.MysqlConnection.ask

    def exchanged(self: Any, statement: str, *how: Any) -> Any:
        spied.before(statement)
        try:
            return exchange(self, statement, *how)
        except lines.Refused as error:
            spied.refusals.append(error.code)
            raise

    monkeypatch.setattr(lines.MysqlConnection, "ask", exchanged)
    return spied


class Steps:
    """One step of a lock: its call, and its expected result."""

    def __init__(self, locks: Any, step: str) -> None:
        self.locks, self.step = locks, step
        self.grant = locks.lock("a", ttl=60).acquire()
        if step == "enter":
            self.grant.release()

    def take(self) -> None:
        """Take the step, and check its result."""
        if self.step == "enter":
            self.grant = self.locks.lock("a", ttl=60).acquire(timeout=20)
        elif self.step == "leave":
            assert self.grant.release() is True
        else:
            self.grant.renew()
        ids = [view.id for view in self.locks.claims("a")]
        assert ids == ([] if self.step == "leave" else [self.grant.id])
        assert self.step == "leave" or self.grant.release() is True


def locked(blocker: Any, table: str, how: str) -> None:
    """Lock the row, or the whole table."""
    if how == "table":
        blocker.cursor().execute(f"LOCK TABLES {table} WRITE")
    else:
        blocker.begin()
        blocker.cursor().execute(f"SELECT * FROM {table} WHERE k = %s FOR UPDATE", (KEY,))


@contextmanager
def held_up(locks: Any, blocker: Any, url: str, step: str, how: str) -> "Iterator[Future[None]]":
    """Take a step that a lock of another session holds up; at the end of the block, let it go on to its end."""
    steps = Steps(locks, step)
    locked(blocker, table_of(url), how)
    with ThreadPoolExecutor() as pool:
        taking = pool.submit(steps.take)
        yield taking
        blocker.rollback()
        blocker.cursor().execute("UNLOCK TABLES")
        taking.result(20)


# A renewal skips locked rows, so only a locked table delays it.
each_step = pytest.mark.parametrize(
    ("step", "how"), [("enter", "row"), ("leave", "row"), ("enter", "table"), ("leave", "table"), ("renew", "table")]
)


@each_step
def test_a_step_whose_wait_took_too_long_is_tried_again(
    url: str, outside: Callable[[], Any], spied: Spied, step: str, how: str
) -> None:
    with interlock.connect(url) as locks, outside() as blocker, held_up(locks, blocker, url, step, how) as taking:
        eventually(lambda: spied.refusals.count("1205") >= 2)
        assert not taking.done()


@each_step
def test_a_step_whose_query_is_killed_is_tried_again(
    url: str, ask: Ask, outside: Callable[[], Any], spied: Spied, step: str, how: str
) -> None:
    with interlock.connect(url) as locks, outside() as blocker, held_up(locks, blocker, url, step, how):
        for number in range(3):
            (id,) = eventually(lambda: ask(BUSY, f"%{table_of(url)}%"))[0]
            ask(f"KILL QUERY {id}")
            eventually(lambda number=number: spied.refusals.count("1317") > number)


@pytest.mark.usefixtures("waits_long")
def test_the_victim_of_an_insert_deadlock_tries_again(
    url: str, ask: Ask, outside: Callable[[], Any], spied: Spied
) -> None:
    """Both wait for the row of a third session, which rolls back: each then holds the gap that the other wants."""
    with (
        interlock.connect(url) as locks, interlock.connect(url) as others, outside() as third,
        ThreadPoolExecutor() as pool,
    ):  # fmt: skip
        locks.lock("b").acquire().release()  # there is a table
        others.lock("c").acquire().release()
        inserting, go = threading.Semaphore(0), threading.Event()

        def before(statement: str) -> None:
            if statement.startswith("INSERT"):
                inserting.release()
                assert go.wait(20)

        spied.before = before
        entering = [pool.submit(each.lock("a", ttl=60).acquire, timeout=0) for each in (locks, others)]
        for _ in entering:
            assert inserting.acquire(timeout=20)
        third.begin()
        third.cursor().execute(f"INSERT INTO {table_of(url)} VALUES (%s, '', 1, '', 'a', '')", (KEY,))
        go.set()
        eventually(lambda: len(ask(WAITING)) == 2)
        third.rollback()
        grants = [each.result(20) for each in entering]
        assert spied.refusals.count("1213") == 1
        (grant,) = [each for each in grants if each is not None]
        assert [view.id for view in locks.claims("a")] == [grant.id]
        assert grant.release() is True


@each_step
def test_time_limits_of_server_or_account_end_no_step(
    url: str, ask: Ask, outside: Callable[[], Any], spied: Spied, step: str, how: str
) -> None:
    ask("CREATE OR REPLACE USER limited@'127.0.0.1' WITH MAX_STATEMENT_TIME 0.05")
    ask("GRANT ALL ON interlock.* TO limited@'127.0.0.1'")
    limited = url.replace("root@", "limited@")
    with outside() as blocker, outside() as other:
        cursor = other.cursor()
        cursor.execute("SET GLOBAL max_statement_time = 0.05")
        try:
            with interlock.connect(limited) as locks, held_up(locks, blocker, url, step, how):
                eventually(lambda: cursor.execute(f"{BUSY} AND TIME_MS > 200", (f"%{table_of(url)}%",)))
        finally:
            cursor.execute("SET GLOBAL max_statement_time = 0")
    assert "1969" not in spied.refusals
