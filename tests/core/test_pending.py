"""The pending protocol: what a claim may do after a look, and when it looks again."""

import asyncio
from typing import Any

import pytest

from interlock.core._async.pending import PendingRecord, judge
from interlock.core.claims import PENDING, QUEUED, SEPARATOR, USING, WRITER_UNITS, Claim, LockSpec
from interlock.stores._async.record_queue import AsyncRecordQueue
from tests.support.records import MemoryRecords, RecordsOfTasks

SPEC = LockSpec(f"{SEPARATOR}name", 1, 1, 30.0)
ME = Claim("me", SPEC)
W = WRITER_UNITS


def record(id: str, key: int, state: Any = PENDING, units: int = 1, capacity: int = 1, **more: Any) -> PendingRecord:
    """Return a record that has not expired."""
    return PendingRecord(id, key, units, capacity, state, 0, False)._replace(**more)


MINE = record("me", 5)
READER = record("me", 5, PENDING, 1, W)
LOOKS: list[tuple[list[PendingRecord], tuple[Any, ...]]] = [
    ([], ("gone", False, 0, None)),
    ([record("x", 1, expired=True)], ("gone", False, 0, "x")),
    ([MINE._replace(expired=True), record("x", 1)], ("gone", False, 0, None)),
    ([record("me", 5, USING, fence=8), record("x", 1, expired=True)], ("holds", True, 8, "x")),
    ([MINE], ("enter", True, 0, None)),
    ([record("me", 5, QUEUED)], ("enter", False, 0, None)),
    ([record("x", 1, USING, expired=True), MINE], ("enter", True, 0, "x")),
    ([record("x", 1, USING), MINE], ("busy", True, 0, None)),
    ([record("x", 9, USING), MINE], ("busy", True, 0, None)),
    ([record("x", 1), MINE], ("give way", True, 0, None)),
    ([record("x", 1, QUEUED), MINE], ("give way", True, 0, None)),
    ([MINE, record("x", 9)], ("neighbour", True, 0, None)),
    ([MINE, record("x", 9, QUEUED)], ("enter", True, 0, None)),
    ([record("x", 1, PENDING, 1, 3), record("me", 5, PENDING, 1, 3)], ("give way", True, 0, None)),
    ([record("me", 5, PENDING, 1, 3), record("x", 9, PENDING, 2, 3)], ("enter", True, 0, None)),
    ([record("me", 5, PENDING, 2, 3), record("x", 9, PENDING, 2, 3)], ("neighbour", True, 0, None)),
    ([record("x", 1, PENDING, 1, W), record("y", 1, USING, 1, W), READER], ("enter", True, 0, None)),
    ([record("x", 1, PENDING, W, W), READER], ("give way", True, 0, None)),
    ([record("x", 1, QUEUED, 1, W), record("y", 1, USING, W, W), READER], ("give way", True, 0, None)),
    ([record("x", 1, PENDING, 1, 3), READER], ("give way", True, 0, None)),
]


@pytest.mark.parametrize(("records", "judgement"), LOOKS)
def test_a_look_says_what_a_claim_may_do(records: list[PendingRecord], judgement: Any) -> None:
    assert judge("me", records) == judgement


@pytest.mark.parametrize("wait", [True, False], ids=["waits", "tries"])
def test_a_neighbour_that_is_about_to_give_way_is_looked_at_again_soon(wait: bool) -> None:
    records = MemoryRecords(look_again=4.0)
    neighbour = Claim("neighbour", SPEC)
    for each in (ME, neighbour):  # it is in line, will have to give way, and has not looked yet
        records.create(each)
    queue = AsyncRecordQueue(RecordsOfTasks(records))
    answer = asyncio.run(queue.enter(ME, None, wait, False))
    assert (answer.state, answer.look_again) == ("pending", 0.005)  # no refusal: it may be free in a moment
    records.promote(neighbour)
    again = asyncio.run(queue.enter(ME, None, True, True))
    assert again.state == "pending"
    assert 2.0 <= again.look_again < 4.0  # not all at once
