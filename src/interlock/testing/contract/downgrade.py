"""A writer that becomes a reader: `grant.downgrade()`."""

from collections.abc import Generator
from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.cancellation import MOMENTS, cancelled_at
from interlock.testing.contract.fixtures import needs, of_tasks
from interlock.testing.faults import Failing, Lossy, Stepwise
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually, throughout, until_renewed

IMMEDIATELY = 4.0  # seconds; a waiter that is not notified polls later
LONG_TTL = 60.0
ROUNDS = 20


def kinds(world: ContractWorld) -> list[str]:
    """Return the kinds of the holders."""
    return [view.kind for view in world.holders()]


def check_supported(world: ContractWorld, locks: Any, ann: Actor) -> None:
    """Raise Unsupported on a store that lacks downgrades, before the test lets others wait."""
    grant = ann.do(locks.rwlock(world.fresh_name()).write().acquire)
    ann.do(grant.downgrade)
    ann.do(grant.release)


@needs("downgrade")
@pytest.mark.parametrize("where", ["the same client", "another client"])
def test_readers_behind_a_downgraded_writer_get_in_up_to_the_next_writer(
    world: ContractWorld, locks: Any, where: str
) -> None:
    ann, bob, cyd, eve, fay, gus = world.actors(6)
    check_supported(world, locks, ann)
    mine = locks.rwlock(world.name, ttl=LONG_TTL)
    theirs = (locks if where == "the same client" else world.connect()).rwlock(world.name, ttl=LONG_TTL)
    grant = ann.do(mine.write().acquire)
    known = grant.id, grant.fence
    readers = [world.in_line(each.start, theirs.read().acquire) for each in (bob, cyd)]
    writer = world.in_line(eve.start, theirs.write().acquire)
    last = world.in_line(fay.start, theirs.read().acquire)
    ann.do(grant.downgrade)
    eventually(lambda: all(each.done() for each in readers), within=IMMEDIATELY)
    assert (grant.held, grant.id, grant.fence) == (True, *known)
    assert kinds(world) == ["reader"] * 3
    assert gus.do(theirs.read().acquire, timeout=0) is None
    for each in (grant, readers[0].result(), readers[1].result()):
        assert not writer.done()
        ann.do(each.release)
    eve.do(writer.result(20).release)
    fay.do(last.result(20).release)
    assert world.nothing_left()


@needs("downgrade")
def test_new_readers_come_in_beside_a_downgraded_writer(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    grant = ann.do(rw.write().acquire)
    ann.do(grant.downgrade)
    reader = bob.do(rw.read().acquire, timeout=0)
    assert eve.do(rw.write().acquire, timeout=0) is None
    writer = world.in_line(eve.start, rw.write().acquire)
    ann.do(grant.release)
    throughout(0.2, lambda: not writer.done())
    bob.do(reader.release)
    assert writer.result(20).fence > grant.fence


@needs("downgrade")
def test_the_next_writer_waits_for_a_downgraded_one(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    check_supported(world, locks, ann)
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    for _ in range(ROUNDS):
        grant = ann.do(rw.write().acquire)
        waiting = world.in_line(bob.start, rw.write().acquire)
        ann.do(grant.downgrade)
        assert kinds(world) == ["reader"]
        assert not waiting.done()
        assert ann.do(grant.release) is True
        assert bob.do(waiting.result(20).release) is True
        assert world.nothing_left()


@needs("downgrade")
def test_a_downgrade_right_after_a_hand_over_is_no_loss(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    rw = locks.rwlock(world.name, ttl=LONG_TTL)

    check_supported(world, locks, ann)

    def steps() -> Generator[Any, Any, Any]:
        grant = yield from world.result(rw.write().acquire())
        yield from world.result(grant.downgrade())
        return grant

    for _ in range(ROUNDS):
        grant = ann.do(rw.write().acquire)
        waiting = world.in_line(bob.start, world.function(steps))
        assert ann.do(grant.release) is True
        second = waiting.result(20)
        assert kinds(world) == ["reader"]
        assert bob.do(second.release) is True
        assert world.nothing_left()


@needs("downgrade")
def test_the_end_of_a_block_releases_a_downgraded_grant(world: ContractWorld) -> None:
    seen: list[list[str]] = []

    def body(grant: Any) -> Generator[Any, Any, None]:
        yield from world.result(grant.downgrade())
        seen.append(kinds(world))

    world.actor().within(world.connect().rwlock(world.name, ttl=LONG_TTL).write(), world.function(body))
    assert seen == [["reader"]]
    assert world.nothing_left()


@needs("downgrade")
def test_a_reader_stays_a_reader(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    readers = [ann.do(rw.read().acquire), bob.do(rw.read().acquire)]
    for _ in range(2):
        ann.do(readers[0].downgrade)
    assert kinds(world) == ["reader"] * 2
    assert [ann.do(each.release) for each in readers] == [True, True]
    assert world.nothing_left()


@pytest.mark.parametrize("make", ["lock", "rlock"])
def test_only_a_reader_writer_lock_can_be_downgraded(world: ContractWorld, locks: Any, ann: Actor, make: str) -> None:
    grant = ann.do(getattr(locks, make)(world.name).acquire)
    with pytest.raises(InvalidArgument, match=r"rwlock\(name\)\.write\(\)"):
        ann.do(grant.downgrade)
    assert ann.do(grant.release) is True


def test_a_semaphore_cannot_be_downgraded(world: ContractWorld, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.semaphore(world.name, 3, units=3).acquire)
    with pytest.raises(InvalidArgument, match=r"rwlock\(name\)\.write\(\)"):
        ann.do(grant.downgrade)
    assert ann.do(grant.release) is True


@needs("downgrade")
def test_what_is_not_held_cant_be_downgraded(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect(ttl=LONG_TTL).rwlock(world.name).write()
    grant = ann.do(lock.acquire)
    world.eye.evict(world.name)
    with pytest.raises(LockLost):
        ann.do(grant.downgrade)
    assert grant.lost
    grant = ann.do(lock.acquire)
    ann.do(grant.release)
    with pytest.raises(NotHeld):
        ann.do(grant.downgrade)


@needs("downgrade")
def test_a_downgrade_without_a_reply_keeps_a_read_lock_and_can_be_repeated(
    world: ContractWorld, ann: Actor, bob: Actor, eve: Actor
) -> None:
    locks, lossy = world.connect_with(Lossy)
    check_supported(world, locks, ann)
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    grant = ann.do(rw.write().acquire)
    reader = world.in_line(bob.start, rw.read().acquire)
    lossy.losses["adopt"] = 1
    with pytest.raises(StoreError, match="was lost"):
        ann.do(grant.downgrade)
    assert grant.held
    assert eve.do(rw.write().acquire, timeout=0) is None
    ann.do(grant.downgrade)
    assert reader.result(20).held
    assert kinds(world) == ["reader"] * 2
    assert ann.do(grant.release) is True


@needs("downgrade")
def test_a_token_after_a_failed_downgrade_is_of_a_reader(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    check_supported(world, locks, ann)
    failing.broken.add("adopt")
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    grant = ann.do(rw.write().acquire)
    with pytest.raises(StoreError):
        ann.do(grant.downgrade)
    assert kinds(world) == ["writer"]
    reader = world.in_line(bob.start, rw.read().acquire)
    failing.broken.clear()
    attached = ann.do(locks.attach, ann.do(grant.detach))
    eventually(reader.done, within=IMMEDIATELY)
    assert kinds(world) == ["reader"] * 2
    ann.do(attached.downgrade)
    assert ann.do(attached.release) is True


@needs("downgrade")
@of_tasks
def test_a_downgrade_cancelled_at_any_moment_keeps_the_grant(world: ContractWorld) -> None:
    rw = world.connect(Stepwise).rwlock(world.name, ttl=LONG_TTL)

    async def story(moment: int) -> None:
        grant = await rw.write().acquire()
        await cancelled_at(moment, grant.downgrade())
        assert grant.held
        await grant.downgrade()
        assert kinds(world) == ["reader"]
        assert await grant.release() is True

    for moment in range(MOMENTS):
        world.run(story(moment))
        assert world.nothing_left(), moment


@needs("downgrade")
def test_a_downgraded_grant_is_renewed_during_the_step_and_after_it(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    lock = locks.rwlock(world.name, ttl=2 * RENEWED).write()
    for _ in range(ROUNDS):
        grant = ann.do(lock.acquire)
        renewal = bob.start(grant.renew)
        ann.do(grant.downgrade)
        assert renewal.result(20) is True
        assert ann.do(grant.release) is True
    grant = ann.do(lock.acquire)
    ann.do(grant.downgrade)
    until_renewed(grant)
    assert ann.do(grant.release) is True


@needs("downgrade")
def test_a_downgraded_grant_of_several_locks(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    rw = locks.rwlock(world.name, ttl=LONG_TTL)
    grants = ann.do(locks.all(world.fresh_name(), rw.write()).acquire)
    (mine,) = (grant for grant in grants if grant.name == world.name)
    ann.do(mine.downgrade)
    assert grants.held
    assert bob.do(rw.read().acquire, timeout=0) is not None
    assert ann.do(grants.release) is True
