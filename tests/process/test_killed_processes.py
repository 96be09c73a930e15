"""Processes that are killed, are stopped, or exit, while they hold a lock or wait for one."""

import signal

import pytest

import interlock
from interlock.testing.other_process import RemoteError, log_next, logged
from interlock.testing.store_fixture import KINDS, ContractWorld, LockKind, StoreFixture
from interlock.testing.waiting import lasting, throughout
from tests.process.conftest import FREES_AT_DEATH, Start

TTL = 30
BRIEF = 2
SOON = 5.0  # seconds, on a busy machine; far less than the lease

ACQUIRE = "lock = locks.lock('book', ttl={ttl}); grant = lock.acquire(); result = grant.fence"


def acquire(ttl: float = TTL) -> str:
    """Return statements by which a remote process acquires."""
    return ACQUIRE.format(ttl=ttl)


def ttl_of(place: StoreFixture) -> float:
    """Return the lease of a process that dies."""
    return TTL if place.frees_at_death else BRIEF


def wait_limit(place: StoreFixture, ttl: float) -> float:
    """Return how long a dead process's lock may stay."""
    return SOON if place.frees_at_death else ttl + SOON


def test_a_killed_holder_frees_the_lock_for_those_who_wait(
    place: StoreFixture, world: ContractWorld, remote: Start
) -> None:
    holder, waiter, ttl = remote(), remote(), ttl_of(place)
    first = holder.do(acquire(ttl))
    waiter.start(acquire(ttl))
    world.until_waiting(1, "book")
    job = world.in_line(world.actor().start, world.connect().lock("book").acquire)
    holder.kill()
    second = waiter.answer(wait_limit(place, ttl))
    waiter.kill()
    assert first < second < job.result(wait_limit(place, ttl)).fence


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@FREES_AT_DEATH
def test_a_killed_holder_of_each_kind_frees_it(
    place: StoreFixture, locks: interlock.Locks, remote: Start, kind: LockKind
) -> None:
    holder = remote()
    holder.do(
        "from interlock.testing.store_fixture import KINDS\n"
        f"kind = next(kind for kind in KINDS if kind.name == {kind.name!r})\n"
        f"grant = kind.make(locks, 'book', ttl={TTL}).acquire()"
    )
    assert kind.rival(locks, "book").acquire(timeout=0) is None
    holder.kill()
    assert kind.rival(locks, "book").acquire(timeout=wait_limit(place, TTL)) is not None


@FREES_AT_DEATH
def test_a_writer_waits_for_live_readers_not_for_killed_ones(
    place: StoreFixture, world: ContractWorld, remote: Start
) -> None:
    first, second = remote(), remote()
    for each in (first, second):
        each.do("grant = locks.rwlock('book').read().acquire()")
    writer = world.in_line(world.actor().start, world.connect().rwlock("book").write().acquire)
    first.kill()
    throughout(0.3, lambda: not writer.done())
    second.kill()
    assert writer.result(wait_limit(place, TTL)) is not None


@pytest.mark.parametrize("position", range(4))
@FREES_AT_DEATH
def test_a_killed_waiter_does_not_block_the_line(world: ContractWorld, remote: Start, position: int) -> None:
    lock = world.connect().lock("book")
    holder = lock.acquire()
    waiters = [remote() for _ in range(4)]
    for number, waiter in enumerate(waiters):
        waiter.start("with locks.lock('book') as grant: result = grant.fence")
        world.until_waiting(number + 1, "book")
    waiters[position].kill()
    with lasting(0.0, SOON):
        holder.release()
        fences = [waiter.answer() for waiter in waiters if waiter is not waiters[position]]
    assert fences == sorted(fences)
    assert len(set(fences)) == 3


def test_a_holder_stopped_past_its_lease_learns_that_it_lost(locks: interlock.Locks, remote: Start, log: str) -> None:
    holder = remote()
    fence = holder.do(acquire(ttl=0.8))
    holder.signal(signal.SIGSTOP)
    grant = locks.lock("book").acquire(timeout=20)
    assert grant.fence > fence
    log_next(log, grant.fence)
    holder.signal(signal.SIGCONT)
    with pytest.raises(RemoteError) as caught:
        holder.do("grant.check()")
    assert caught.value.kind == "LockLost"
    assert holder.do("result = [grant.lost, grant.held, grant.expires_in, grant.fence]") == [True, False, 0, fence]
    assert holder.do("result = grant.release()") is False
    assert grant.held is True
    assert max(logged(log)[1]) > fence  # so the resource can refuse writes with the old fence


def test_a_stopped_waiter_costs_the_others_at_most_its_lease(world: ContractWorld, remote: Start) -> None:
    holder = world.connect().lock("book").acquire()
    waiter = remote()
    waiter.start(acquire(ttl=1))
    world.until_waiting(1, "book")
    job = world.in_line(world.actor().start, world.connect().lock("book").acquire)
    waiter.signal(signal.SIGSTOP)
    with lasting(0.0, 1 + SOON):
        holder.release()
        grant = job.result(20)
    waiter.signal(signal.SIGCONT)
    world.until_waiting(1, "book")  # it begins again
    grant.release()
    assert waiter.answer() > grant.fence


def test_a_program_that_ends_releases_what_it_holds(
    world: ContractWorld, locks: interlock.Locks, remote: Start
) -> None:
    holder = remote()
    holder.do(acquire())
    job = world.in_line(world.actor().start, world.connect().lock("book").acquire)
    assert holder.end() == 0
    job.result(SOON).release()
    assert locks.claims() == []


def test_a_program_that_ends_with_an_asyncio_lock_held_frees_it(
    place: StoreFixture, locks: interlock.Locks, remote: Start
) -> None:
    ttl = ttl_of(place)
    holder = remote()
    holder.do(
        "import asyncio\n"
        "async def main():\n"
        "    alocks = interlock.aconnect(url)\n"
        f"    return (await alocks.lock('book', ttl={ttl}).acquire()).fence\n"
        "result = asyncio.run(main())"
    )
    holder.end()
    assert locks.lock("book").acquire(timeout=wait_limit(place, ttl)) is not None


def test_claims_tell_the_process(locks: interlock.Locks, remote: Start) -> None:
    holder = remote()
    holder.do(acquire())
    (view,) = locks.claims("book")
    assert view.pid == holder.process.pid
    assert locks.evict("book", view.id) == 1
    with pytest.raises(RemoteError) as caught:
        holder.do("grant.renew(); grant.check()")
    assert caught.value.kind == "LockLost"
