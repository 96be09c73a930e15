"""The pending protocol: when a claim that waits looks again."""

import asyncio
from typing import Any

import pytest

from interlock.core._async.pending import Judgement, evaluate
from interlock.core.claims import PENDING, QUEUED, SEPARATOR, USING, WRITER_UNITS, Claim, LockSpec
from interlock.core.errors import Unsupported
from interlock.core.queue import PendingRecord
from interlock.storekit._async.record_queue import AsyncRecordQueue
from tests.support.memory_records import MemoryRecords, RecordsOfTasks

SPEC = LockSpec(f"{SEPARATOR}name", 1, 1, 30.0)
ME = Claim("me", SPEC)


@pytest.mark.parametrize("wait", [True, False], ids=["waits", "tries"])
def test_a_claim_about_to_give_way_is_looked_at_again_soon(wait: bool) -> None:
    records = MemoryRecords(poll_after=4.0)
    neighbour = Claim("neighbour", SPEC)
    for each in (ME, neighbour):  # it is in line, will have to give way, and has not looked yet
        records.create(each)
    queue = AsyncRecordQueue(RecordsOfTasks(records))
    answer = asyncio.run(queue.enter(ME, None, wait, False))
    assert (answer.state, answer.poll_after) == ("pending", 0.005)  # no refusal: it may be free in a moment
    records.promote(neighbour)
    again = asyncio.run(queue.enter(ME, None, True, True))
    assert again.state == "pending"
    assert 2.0 <= again.poll_after < 4.0  # not all at once


def test_a_waiter_far_behind_in_line_looks_less_often() -> None:
    records = MemoryRecords(poll_after=0.25)
    for number in range(100):
        records.create(Claim(f"before {number}", SPEC))
    answer = asyncio.run(AsyncRecordQueue(RecordsOfTasks(records)).enter(ME, None, True, False))
    assert answer.state == "pending"
    assert 2.5 <= answer.poll_after <= 5.0


def record(id: str, key: int, state: Any = PENDING, units: int = 1, capacity: int = 1, **more: Any) -> PendingRecord:
    """Return what the store shows of a claim."""
    return PendingRecord(id, key, units, capacity, state, more.get("fence", 0), more.get("expired", False))


MINE, READER = record("me", 5), record("me", 5, units=1, capacity=WRITER_UNITS)
OLD = record("old", 1, expired=True)
BEFORE = record("other", 4, QUEUED, 1, WRITER_UNITS)
JUDGED = [
    ([], Judgement("gone", False, 0, None)),
    ([record("me", 5, expired=True), OLD], Judgement("gone", False, 0, "old")),
    ([record("me", 5, expired=True)], Judgement("gone", False, 0, None)),
    ([record("me", 5, USING, fence=7)], Judgement("holds", True, 7, None)),
    ([MINE, OLD], Judgement("enter", True, 0, "old")),
    ([record("me", 5, QUEUED)], Judgement("enter", False, 0, None)),
    ([MINE, record("other", 4, QUEUED)], Judgement("give way", True, 0, None, 1)),
    ([MINE, record("other", 6, QUEUED)], Judgement("enter", True, 0, None)),
    ([MINE, record("other", 6)], Judgement("neighbour", True, 0, None)),
    ([MINE, record("other", 6, USING)], Judgement("busy", True, 0, None)),
    ([MINE, record("other", 4, USING)], Judgement("busy", True, 0, None)),
    ([READER, BEFORE], Judgement("enter", True, 0, None, 1)),
    ([READER, BEFORE, record("third", 3, QUEUED, 1, 3)], Judgement("give way", True, 0, None, 2)),
    ([READER, BEFORE._replace(units=WRITER_UNITS)], Judgement("give way", True, 0, None, 1)),
    ([record("me", 5, capacity=3), record("other", 4, QUEUED, 1, 3)], Judgement("give way", True, 0, None, 1)),
    ([record("me", 5, capacity=3), record("other", 4, USING, 1, 3)], Judgement("enter", True, 0, None)),
]


@pytest.mark.parametrize(("records", "judgement"), JUDGED)
def test_what_a_claim_may_do_follows_from_one_look(records: Any, judgement: Judgement) -> None:
    assert evaluate(b"me".decode(), records) == judgement  # ids that were read are equal, and not the same object


def test_a_queue_on_records_refuses_runs_and_detached_locks() -> None:
    line = AsyncRecordQueue(RecordsOfTasks(MemoryRecords()))
    for step in (line.run_result("key"), line.delete_run_result("key"), line.adopt("key", "id", ME)):
        with pytest.raises(Unsupported):
            asyncio.run(step)
