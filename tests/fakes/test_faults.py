"""The fakes for users' tests behave as stores with those faults."""

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import interlock
from interlock.testing.fakes import FakeLocks
from interlock.testing.waiting import moment, since


@pytest.fixture
def fake() -> Iterator[FakeLocks]:
    with FakeLocks() as made:
        yield made


def test_a_grant_that_is_lost_tells_its_holder_only(fake: FakeLocks) -> None:
    told: list[interlock.Grant] = []
    locks = fake.connect(namespace="shop")
    mine = locks.lock("book", on_lost=told.append, renew=False).acquire()
    other = fake.connect().lock("book").acquire()
    assert mine is not None
    assert other is not None
    fake.lose(mine)
    assert (mine.lost, other.lost) == (True, False)
    with pytest.raises(interlock.LockLost):
        mine.check()
    with pytest.raises(interlock.InvalidArgument, match="is not held"):
        fake.lose(mine)
    other.release()
    with pytest.raises(interlock.InvalidArgument, match="'book' is not held"):
        fake.lose("book")


def test_the_clock_ends_leases_and_lets_the_next_in(fake: FakeLocks) -> None:
    locks = fake.connect(ttl=20)
    first = locks.lock("book").acquire()
    assert first is not None
    queued = threading.Event()
    locks.subscribe(lambda event: event.kind == "queued" and queued.set())
    got: list[interlock.Grant | None] = []
    waiter = threading.Thread(target=lambda: got.append(locks.lock("book", ttl=60).acquire(timeout=20)))
    waiter.start()
    assert queued.wait(20)
    fake.advance(19)
    assert not first.lost
    started = moment()
    fake.advance(2)
    waiter.join(20)
    assert since(started) < 10
    (grant,) = got
    assert grant is not None
    assert grant.fence > first.fence
    with pytest.raises(interlock.InvalidArgument):
        fake.advance(-1)


def test_replies_are_dropped_of_the_step_that_was_named(fake: FakeLocks) -> None:
    locks = fake.connect()
    fake.drop_reply("enter", 2)
    grant = locks.lock("book").acquire(timeout=20)
    assert grant is not None
    assert len(locks.claims()) == 1
    fake.drop_reply("leave")
    with pytest.raises(interlock.StoreError, match="lost, by order of the test"):
        grant.release()
    assert locks.claims() == []


def test_a_store_that_is_stalled_past_the_lease_loses_the_lock(fake: FakeLocks) -> None:
    lost = threading.Event()
    locks = fake.connect(ttl=0.3)
    grant = locks.lock("book", on_lost=lambda grant: lost.set()).acquire()
    assert grant is not None
    fake.stall(0.6)
    assert lost.wait(20)


def test_a_late_grant_that_can_not_be_returned_is_waited_out(fake: FakeLocks) -> None:
    locks = fake.connect(ttl=1)
    fake.stall(1.2)
    fake.drop_reply("leave")
    asked = time.monotonic()
    grant = locks.lock("book").acquire(timeout=10)
    assert grant is not None
    assert time.monotonic() - asked > 1.2  # the first came too late
    assert not grant.lost


def test_a_claim_that_may_be_left_behind_is_an_error(fake: FakeLocks) -> None:
    locks = fake.connect(ttl=1)
    fake.stall(1.2)
    fake.drop_reply("leave")
    with pytest.raises(interlock.StoreError, match="leave"):
        locks.lock("other").acquire(timeout=0.1)  # no other holder caused it, and a claim may be left


def test_tasks_have_the_same_faults(fake: FakeLocks) -> None:
    async def body() -> None:
        locks = fake.aconnect()
        with pytest.raises(interlock.LockLost):
            async with locks.lock("book"):
                with pytest.raises(interlock.InvalidArgument, match="alose"):
                    fake.lose("book")
                fake.stall(0.1)
                await fake.alose("book")
                await asyncio.sleep(20)
        assert fake.connect().lock("book").acquire(timeout=0) is not None
        fake.drop_reply()
        grant = await locks.lock("pen").acquire()
        assert grant is not None
        fake.advance(31)
        await asyncio.sleep(0.05)
        assert grant.lost
        await locks.close()

    asyncio.run(body())


def test_a_client_can_have_an_instance_as_one_of_connect(fake: FakeLocks) -> None:
    locks = fake.connect(instance="worker-7", takeover=True)
    grant = locks.lock("book").acquire()
    assert [view.instance for view in fake.connect().claims()] == ["worker-7"]
    assert locks.evict(instance="worker-7") == 1
    assert grant.lost


def test_a_client_of_tasks_can_have_an_instance_too(fake: FakeLocks) -> None:
    async def main() -> None:
        async with fake.aconnect(instance="worker-7", takeover=True).lock("book"):
            assert [view.instance for view in fake.connect().claims()] == ["worker-7"]

    asyncio.run(main())
