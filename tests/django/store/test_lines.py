"""The ORM store's steps in a line: fences over sweeps, who stands aside, connections that break or were idle."""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections
from django.db.utils import OperationalError
from store.shelf.models import Item

from interlock import LockTimeout
from interlock.core.claims import PENDING, QUEUED, SEPARATOR, USING, WRITER_UNITS, LockSpec
from interlock.core.claims import Claim as ClaimMade
from interlock.core.errors import UnknownOutcome
from interlock.django import claimlines, locks, occupy
from interlock.django import pool as pools
from interlock.django.models import Claim
from interlock.django.register import Lines, NotCreated
from interlock.django.statements import Statement
from interlock.django.store import OrmStore
from interlock.runtime.sync import ThreadEvent, fresh_id
from interlock.testing.waiting import eventually

LITTLE = 0.3  # seconds


@pytest.fixture(autouse=True)
def claims_apart(settings_for_sqlite: None) -> None:
    """SQLite lets one write at a time: where transactions write, the claims are in a file of their own."""


def claim_of(name: str, units: int = 1, capacity: int = 1) -> ClaimMade:
    """Return a new claim."""
    return ClaimMade(fresh_id(), LockSpec(SEPARATOR + name, units, capacity, 30.0))


def take(lines: Lines, claim: ClaimMade) -> int | None:
    """Create a record and promote it if that is allowed."""
    lines._create(claim, None)
    return lines._promote(claim)


@pytest.fixture
def lines() -> Any:
    store = OrmStore("default", max_connections=8)
    yield store.register
    store.close()


def test_fences_go_on_after_old_records_are_swept_and_the_clock_is_set_back(lines: Lines) -> None:
    first = claim_of("a")
    fence = take(lines, first)
    assert fence is not None
    assert lines._evict(first.spec.key, first.id)
    ahead = fence + 10**15  # as if it was issued before the clock went back
    Claim.objects.filter(fence=fence).update(fence=ahead)
    assert take(lines, claim_of("a")) == ahead + 1
    lines._evict(SEPARATOR + "a", None)
    assert lines.sweep() == 2
    assert Claim.objects.get().claim == claimlines.FLOOR
    again = take(lines, claim_of("a"))
    assert again == ahead + 2
    assert take(lines, claim_of("b")) == ahead + 2
    assert lines.sweep() == 0


def test_each_sweep_raises_the_floor_and_leaves_nothing_else(lines: Lines) -> None:
    fences = []
    for _ in range(3):
        claim = claim_of("a")
        fences.append(take(lines, claim))
        assert lines._delete(claim)
        lines.sweep()  # the first release has swept already
        assert [(each.claim, each.fence) for each in Claim.objects.all()] == [(claimlines.FLOOR, fences[-1])]
    assert None not in fences


@pytest.mark.parametrize("capacity", [1, 5, WRITER_UNITS], ids=["exclusive", "semaphore", "read and write"])
def test_nobody_passes_one_that_has_stood_aside(lines: Lines, capacity: int) -> None:
    holder, waiter, late = (claim_of("a", capacity, capacity) for _ in range(3))
    assert take(lines, holder) is not None
    assert take(lines, waiter) is None
    assert lines._update(waiter, QUEUED)  # its flag is down, its place is kept
    assert lines._evict(holder.spec.key, holder.id)  # who releases would promote it at once, where that is folded
    assert take(lines, late) is None
    assert lines._update(waiter, PENDING)
    assert lines._update(late, QUEUED)
    assert lines._promote(waiter) is not None
    lines._evict(SEPARATOR + "a", None)


def test_a_connection_that_broke_is_not_used_again_nor_are_its_siblings(lines: Lines) -> None:
    pool = lines.pool
    with pool.connection() as one, pool.connection() as sibling:
        assert sibling is not one

    def broken() -> None:
        with pool.connection():
            raise OperationalError("disk I/O error" if one.vendor == "sqlite" else "server closed the connection")

    with pytest.raises(UnknownOutcome):
        broken()
    with pool.connection() as other, pool.connection() as another:
        assert not {other, another} & {one, sibling}


def test_a_connection_that_was_idle_for_long_is_asked_whether_it_lives(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = lines.pool
    with pool.connection() as first:
        pass
    asked: list[bool] = []

    def lives(answer: bool) -> bool:
        asked.append(answer)
        return answer

    monkeypatch.setattr(first, "is_usable", lambda: lives(True))
    with pool.connection() as same:
        assert (same is first, asked) == (True, [])  # it was used just now
    monkeypatch.setattr(pools, "STALE", 0.0)
    with pool.connection() as same:
        assert (same is first, asked) == (True, [True])
    monkeypatch.setattr(first, "is_usable", lambda: lives(False))
    with pool.connection() as other:
        assert (other is first, asked) == (False, [True, False])


def test_sharers_get_fences_of_their_own(lines: Lines) -> None:
    start = threading.Barrier(6)

    def one(_: int) -> int | None:
        start.wait(20)
        return take(lines, claim_of("a", 1, 6))

    with ThreadPoolExecutor(6) as pool:
        fences = [each for each in pool.map(one, range(6)) if each is not None]
    assert len(set(fences)) == len(fences) > 0


def test_where_an_update_can_not_read_its_own_table_the_line_is_locked(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = type(connections["default"].features)
    monkeypatch.setattr(features, "update_can_self_select", False)
    first, second = claim_of("a"), claim_of("a")
    fence = take(lines, first)
    assert fence is not None
    assert take(lines, second) is None
    assert lines._evict(first.spec.key, first.id)
    later = lines._promote(second)
    assert later is not None
    assert later > fence
    assert lines._delete(second)

    def work(_: int) -> None:
        with locks.lock("counted", timeout=60):
            seen = box[0]
            time.sleep(0)
            box[0] = seen + 1

    box = [0]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(20)))
    assert box == [20]


def test_an_extension_that_came_after_the_end_of_the_lease_does_not_count(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_of("a")
    take(lines, claim)
    assert lines._renew([claim]) == [True]
    row = Claim.objects.get(claim=claim.id)
    count_it = Statement.count

    def clock() -> int:
        found: int = Claim.objects.values_list(claimlines.began(), flat=True).get(pk=row.pk)
        return found

    def count_late(self: Statement, connection: Any, **given: Any) -> Any:
        """Let the old lease end after the statement, before the look at the clock."""
        count = count_it(self, connection, **given)
        if self.words.startswith("UPDATE") and "ttl" in given:
            monkeypatch.setattr(Statement, "count", count_it)
            assert count == 1
            eventually(lambda: clock() > end)
        return count

    # A lease that is about to end.
    end = clock() + int(LITTLE * 1e6)
    Claim.objects.filter(pk=row.pk).update(until=end)
    monkeypatch.setattr(Statement, "count", count_late)
    assert lines._renew([claim]) == [False]
    assert Claim.objects.get(claim=claim.id).state == "done"


def test_claims_have_a_connection_of_their_own(lines: Lines) -> None:
    item = Item.objects.create(name="Emma")
    with lines.pool.connection() as connection:
        assert connection is not connections["default"]
        assert connection.get_autocommit()
    with occupy(item):
        with pytest.raises(LockTimeout), ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: occupy(Item, pk=item.pk, timeout=0.1).__enter__()).result()
    assert USING not in {view.state for view in locks.claims()}


def test_a_waiter_that_could_not_be_written_is_forgotten(lines: Lines) -> None:
    claim = claim_of("a")

    with ThreadPoolExecutor(1) as beside, ExitStack() as lent:
        for _ in range(8):
            lent.enter_context(lines.pool.connection())
        with pytest.raises(NotCreated):
            beside.submit(lines._create, claim, ThreadEvent()).result(20)
        assert claim.id not in lines.waiters.ids_of(claim.spec.key)
        if lines.enters_at_once:
            with pytest.raises(NotCreated):
                beside.submit(lines._enter, claim, ThreadEvent(), True).result(20)
            assert claim.id not in lines.waiters.ids_of(claim.spec.key)


def test_a_child_that_was_forked_while_its_parent_swept_sweeps(lines: Lines) -> None:
    for _ in range(3):  # the first release sweeps
        claim = claim_of("a")
        assert take(lines, claim) is not None
        assert lines._delete(claim)
    with lines._sweeper._sweeping:  # as a thread of the parent does
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            status = 1
            try:
                status = 0 if lines.sweep() else 2
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
