"""Functions in the database, where they do more than `core.line`: clocks set back, old names, unusual texts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest

import interlock
from interlock.api.connect import open_store
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.runtime._threads import fresh_id
from interlock.stores.postgresql.ddl import statements, undo
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask, table_of
from tests.servers import PostgresServer
from tests.support.client_actors import side

HOUR = 3600_000_000
NAMES = ("a", "läßt ☃", "back\\slash \\u00e4", "100 %")


def test_fences_increase_when_the_clock_goes_back(url: str, ask: Ask, sync_or_async: str) -> None:
    """After a restored dump, or a clock that was set back by an hour; with waiters and without."""
    with side(sync_or_async, url) as ours, ours.beside() as other:
        first = ours.take("a")
        assert ours.do(first.release) is True
        ask(f"UPDATE {table_of(url)} SET top = top + {HOUR}")
        fences = [first.fence]
        for _ in range(3):
            grant = ours.take("a")
            waiting = other.waits("a")
            eventually(lambda: len(ours.claims("a")) == 2)
            assert ours.do(grant.release) is True
            second = waiting.result(WAIT_LIMIT)
            assert other.do(second.release) is True
            fences += [grant.fence, second.fence]
        assert fences == [fences[0], *range(fences[0] + HOUR + 1, fences[0] + HOUR + 7)]


def test_a_renewal_holds_up_nobody_and_is_held_up_by_nobody(
    url: str, server: PostgresServer, sync_or_async: str
) -> None:
    """A step that does not end locks one claim; the others are renewed."""
    with side(sync_or_async, url) as ours, psycopg.connect(server.url) as other:
        grants = {name: ours.do(ours.locks.lock(name, ttl=2).acquire) for name in ("a", "b", "c")}
        other.execute(f"SELECT 1 FROM {table_of(url)} WHERE id = %s FOR UPDATE", (grants["b"].id,))
        eventually(lambda: grants["b"].lost)
        assert not grants["a"].lost
        assert not grants["c"].lost


def test_old_names_are_swept_and_living_records_are_not(url: str, ask: Ask) -> None:
    table, old = table_of(url), 120_000_000
    with interlock.connect(url) as locks:
        for number in range(100):
            locks.lock(f"once {number}").acquire().release()
        held = locks.lock("held").acquire()
        age = f"top = top - {old}, fence = greatest(0, fence - {old})"
        ask(f"UPDATE {table} SET {age} WHERE name <> 'held'")
        ask(f"UPDATE {table} SET done = fence + {10 * old} WHERE name = 'once 7'")
        assert ask(f"SELECT {table}_sweep(1000, 60000000)") == [(99,)]
        assert ask(f"SELECT name FROM {table} ORDER BY 1") == [("held",), ("once 7",)]
        assert held.release() is True


@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "SQL_ASCII"])
def test_a_database_that_lacks_characters_keeps_every_name(
    server: PostgresServer, ask: Ask, sync_or_async: str, encoding: str
) -> None:
    ask(f"CREATE DATABASE of_{encoding} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = f"{server.url.rpartition('/')[0]}/of_{encoding.lower()}"
    with side(sync_or_async, url) as ours:
        for name in NAMES:
            grant = ours.do(ours.locks.lock(name, label=name).acquire)
            assert [(view.name, view.label) for view in ours.claims(name)] == [(name, name)]
            assert ours.do(grant.release) is True
        grants = [ours.take(name) for name in NAMES]
        assert sorted(view.name for view in ours.do(ours.locks.claims)) == sorted(NAMES)
        for grant in grants:
            assert ours.do(grant.release) is True
    ask(f"DROP DATABASE of_{encoding}")


@pytest.mark.parametrize("text", ["{id} " + "7" * 20, "{id} " + "7" * 5000, "{id} x", "{id}", ""])
def test_a_message_that_is_not_ours_lets_nobody_in(url: str, ask: Ask, text: str) -> None:
    with interlock.connect(url) as locks, ThreadPoolExecutor(1) as threads:
        grant = locks.lock("a").acquire()
        waiting = threads.submit(locks.lock("a").acquire)
        row = f"SELECT id, channel FROM {table_of(url)} WHERE held = 0 AND id <> ''"
        ((id, channel),) = eventually(lambda: ask(row))
        ask("SELECT pg_notify(%s, %s)", channel, text.format(id=id))
        assert len(locks.claims("a")) == 2
        assert not waiting.done()
        grant.release()
        waiting.result(WAIT_LIMIT).release()


def made(url: str, change: Callable[[Any], Any]) -> Any:
    """Call `change` with a connection for threads; return its result."""
    with interlock.connect(url) as locks:
        return change(locks)


def test_a_table_of_another_version_is_refused_and_said_so(url: str, ask: Ask) -> None:
    made(url, lambda locks: locks.lock("a").acquire().release())
    ask(f"ALTER TABLE {table_of(url)} DROP COLUMN once")
    with pytest.raises(interlock.StoreError, match="another version"):
        made(url, lambda locks: locks.lock("a").acquire(timeout=0))


@pytest.fixture
def queue(url: str) -> Iterator[Any]:
    """The queue of a process."""
    with closing(open_store(url).queue()) as queue:
        yield queue


def claims(count: int) -> list[Claim]:
    """Return claims of one exclusive lock."""
    return [Claim(fresh_id(), LockSpec(f"{SEPARATOR}a")) for _ in range(count)]


def test_a_claim_that_is_sent_again_waits_once(queue: Any) -> None:
    """As after a reply that was lost."""
    holder, waiter, last = claims(3)
    assert queue.enter(holder, None, False, False).state == "using"
    notified = queue.subscribe()
    for claim in (waiter, last, waiter):
        assert queue.enter(claim, notified, True, False).state == "pending"
    assert [view.id for view in queue.look(holder.spec.key)] == [holder.id, waiter.id, last.id]


@pytest.mark.parametrize("change", ["TRUNCATE {}_alive", f"UPDATE {{}}_alive SET open_from = {2**62}"])
def test_a_release_in_the_grace_lets_nobody_in(queue: Any, url: str, ask: Ask, change: str) -> None:
    """As the first step after a crash, and as a later one."""
    holder, waiter = claims(2)
    assert queue.enter(holder, None, False, False).state == "using"
    assert queue.enter(waiter, queue.subscribe(), True, False).state == "pending"
    ask(change.format(table_of(url)))
    assert queue.leave(holder)
    assert [(view.id, view.state) for view in queue.look(holder.spec.key)] == [(waiter.id, "pending")]


def test_a_holder_whose_lease_ended_is_told_so_when_it_leaves(queue: Any, url: str, ask: Ask) -> None:
    holder, waiter = claims(2)
    assert queue.enter(holder, None, False, False).state == "using"
    assert queue.enter(waiter, queue.subscribe(), True, False).state == "pending"
    ask(f"UPDATE {table_of(url)} SET until = 1 WHERE id = %s", holder.id)
    assert not queue.leave(holder)
    assert [(view.id, view.state) for view in queue.look(holder.spec.key)] == [(waiter.id, "using")]


def test_a_release_passes_over_a_waiter_whose_lease_ended(queue: Any, url: str, ask: Ask) -> None:
    holder, dead, waiter = claims(3)
    assert queue.enter(holder, None, False, False).state == "using"
    for claim in (dead, waiter):
        assert queue.enter(claim, queue.subscribe(), True, False).state == "pending"
    ask(f"UPDATE {table_of(url)} SET until = 1 WHERE id = %s", dead.id)
    assert queue.leave(holder)
    assert [(view.id, view.state) for view in queue.look(holder.spec.key)] == [(waiter.id, "using")]


def test_a_release_lets_no_claim_of_once_in_during_its_record(queue: Any, url: str, ask: Ask) -> None:
    """The record of a run that was completed behind more claims of once than one step removes."""
    holder, waiter = claims(2)
    waiter = waiter._replace(spec=waiter.spec._replace(once=True))
    assert queue.enter(holder, None, False, False).state == "using"
    assert queue.enter(waiter, queue.subscribe(), True, False).state == "pending"
    ask(f"UPDATE {table_of(url)} SET done = top + {HOUR} WHERE number = 0")
    assert queue.leave(holder)
    assert [view.state for view in queue.look(holder.spec.key)] == ["done"]


@pytest.mark.parametrize("dropped", [False, True])
def test_functions_of_an_older_version_stay_beside_the_new(url: str, ask: Ask, dropped: bool) -> None:
    table = table_of(url)
    made(url, lambda locks: locks.lock("a").acquire().release())
    for name in ("enter", "leave"):
        ask(f"DROP FUNCTION {table}_{name}")
        ask(f"CREATE FUNCTION {table}_{name}(key bytea) RETURNS text LANGUAGE sql AS 'SELECT ''old'''")
    made(url, lambda locks: locks.lock("a").acquire().release())
    assert ask(f"SELECT {table}_enter(''::bytea), {table}_leave(''::bytea)") == [("old", "old")]
    if dropped:
        ask(f"DROP TABLE {table}")
    for statement in statements(undo(table)):
        ask(statement)
    assert ask("SELECT proname FROM pg_proc WHERE proname LIKE %s", f"{table}%") == []
