"""The pending protocol: when a claim that waits looks again."""

import asyncio

import pytest

from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.stores._async.record_queue import AsyncRecordQueue
from tests.support.records import MemoryRecords, RecordsOfTasks

SPEC = LockSpec(f"{SEPARATOR}name", 1, 1, 30.0)
ME = Claim("me", SPEC)


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
