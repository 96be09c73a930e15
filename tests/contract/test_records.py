"""The pending protocol on records with each reply lost in turn: no record is left behind, no second holder."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.core.claims import LockSpec
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.testing.store_fixture import Place, World
from interlock.testing.waiting import eventually
from tests.support.memory_records import MemoryRecords, RecordsStore

SEED = 20261121
REQUESTS = 12  # an acquire with its release has fewer
METHODS = ["create", "list", "update", "promote", "delete", "reap", "renew"]


class Flaky(MemoryRecords):
    """Records that perform all requests, and lose the replies to some of them."""

    def __init__(self) -> None:
        super().__init__()
        self.lose: Callable[[int], bool] = lambda number: False
        self.asked = 0
        for method in METHODS:
            setattr(self, method, self._flaky(getattr(self, method)))

    def _flaky(self, request: Callable[..., Any]) -> Callable[..., Any]:
        def ask(*args: Any) -> Any:
            answer = request(*args)
            self.asked += 1
            if self.lose(self.asked):
                raise UnknownOutcome("a reply was lost, by order of the test")
            return answer

        return ask

    def lose_from_now(self, *numbers: int) -> None:
        """Lose the replies to the requests with these numbers, counted from now, from 1."""
        self.asked = 0
        self.lose = lambda number: number in numbers


@pytest.fixture
def records() -> Flaky:
    """Records in memory."""
    return Flaky()


@pytest.fixture(params=["threads", "tasks"])
def world(request: pytest.FixtureRequest, records: Flaky) -> Iterator[World]:
    """A world on the records."""
    world = World(Place(open=lambda: RecordsStore(records)), request.param)
    yield world
    records.lose_from_now()
    world.close()


@pytest.mark.parametrize("number", range(1, REQUESTS))
@pytest.mark.parametrize("row", [1, 2], ids=["one", "two in a row"])
def test_any_lost_reply_while_acquiring_strands_no_orphan(
    world: World, records: Flaky, number: int, row: int
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
def test_any_lost_reply_while_waiting_strands_no_orphan(world: World, records: Flaky, number: int) -> None:
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


def test_who_waits_removes_the_records_of_the_dead(world: World, records: Flaky) -> None:
    ann, bob = world.actors(2)
    lock = world.connect().lock(world.name)
    held = ann.do(lock.acquire)
    dead = world.ghost(LockSpec(world.key(), ttl=0.2))
    waiting = bob.start(lock.acquire)
    eventually(lambda: [row for row in records._in_line(world.key()) if row.claim.id == dead] == [])
    assert ann.do(held.release) is True
    assert waiting.result(20).held is True
