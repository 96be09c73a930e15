"""The pending protocol on records with each reply lost in turn: no record is left behind, no second holder."""

from collections.abc import Iterator

import pytest

from interlock.core.claims import LockSpec
from interlock.core.errors import StoreError
from interlock.testing.store_fixture import ContractWorld, StoreFixture
from interlock.testing.waiting import eventually
from tests.support.memory_records import LossyRecords, RecordsStore

SEED = 20261121
REQUESTS = 12  # an acquire with its release has fewer


@pytest.fixture
def records() -> LossyRecords:
    """Records in memory."""
    return LossyRecords()


@pytest.fixture(params=["threads", "tasks"])
def world(request: pytest.FixtureRequest, records: LossyRecords) -> Iterator[ContractWorld]:
    """A world on the records."""
    world = ContractWorld(StoreFixture(open=lambda: RecordsStore(records)), request.param)
    yield world
    records.lose_from_now()
    world.close()


@pytest.mark.parametrize("number", range(1, REQUESTS))
@pytest.mark.parametrize("row", [1, 2], ids=["one", "two in a row"])
def test_any_lost_reply_while_acquiring_strands_no_orphan(
    world: ContractWorld, records: LossyRecords, number: int, row: int
) -> None:
    lock = world.connect().lock(world.name)
    ann = world.actor()
    records.lose_from_now(*range(number, number + row))
    grant = ann.do(lock.acquire, timeout=10)
    assert grant is not None
    records.lose_from_now()
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id]
    assert ann.do(grant.release) is True
    assert world.nothing_left()


@pytest.mark.parametrize("number", range(1, REQUESTS))
def test_any_lost_reply_while_waiting_strands_no_orphan(
    world: ContractWorld, records: LossyRecords, number: int
) -> None:
    ann, bob = world.actors(2)
    holder = ann.do(world.connect().lock(world.name).acquire)
    records.lose_from_now(number)
    waiting = bob.start(world.connect().lock(world.name).acquire)
    world.until_waiting(1)
    ann_released = ann.start(holder.release)
    try:
        ann_released.result(20)
    except StoreError:
        ann.do(holder.release)
    grant = waiting.result(20)
    records.lose_from_now()
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id]
    assert bob.do(grant.release) is True


def test_who_waits_removes_the_records_of_the_dead(world: ContractWorld, records: LossyRecords) -> None:
    ann, bob = world.actors(2)
    lock = world.connect().lock(world.name)
    held = ann.do(lock.acquire)
    dead = world.stale_claim(LockSpec(world.key(), ttl=0.2))
    waiting = bob.start(lock.acquire)
    eventually(lambda: [row for row in records._in_line(world.key()) if row.claim.id == dead] == [])
    assert ann.do(held.release) is True
    assert waiting.result(20).held is True
