"""Lost replies: a request was performed without the caller's knowledge; a retry leaves no second claim."""

from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.core.failures import Unreachable
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import needs
from interlock.testing.faults import Failing, Lossy
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually, until_renewed


def test_an_acquire_whose_reply_was_lost_is_asked_again(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, lossy = world.connect_with(lambda store: Lossy(store, enter=1))
    grant = ann.do(kind.make(locks, world.name).acquire)
    assert grant is not None
    assert [(view.id, view.fence) for view in world.eye.claims(world.name)] == [(grant.id, grant.fence)]
    assert lossy.losses["enter"] == 0
    assert ann.do(grant.release) is True
    assert world.nothing_left()


def test_a_try_whose_reply_was_lost_gets_the_lock_without_orphan(
    world: ContractWorld, kind: LockKind, ann: Actor
) -> None:
    locks, lossy = world.connect_with(Lossy)
    lock = kind.make(locks, world.name)
    for losses in (1, 2):
        lossy.losses["enter"] = losses
        grant = ann.do(lock.acquire, timeout=0)
        assert grant is not None
        assert ann.do(grant.release) is True
        assert world.nothing_left()


def test_replies_lost_while_waiting_do_not_lose_the_lock(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    locks, lossy = world.connect_with(Lossy)
    holder = ann.do(kind.rival(world.connect(), world.name).acquire)
    lossy.losses["enter"] = 3
    waiting = world.in_line(bob.start, kind.make(locks, world.name).acquire)
    ann.do(holder.release)
    grant = waiting.result(20)
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id]
    assert bob.do(grant.release) is True


def test_an_acquire_without_any_reply_fails_and_leaves_nothing(
    world: ContractWorld, kind: LockKind, ann: Actor
) -> None:
    locks, lossy = world.connect_with(lambda store: Lossy(store, enter=1000))
    lock = kind.make(locks, world.name)
    for timeout in (0, None, 60):  # the error comes long before that
        with pytest.raises(StoreError):
            ann.do(lock.acquire, timeout=timeout)
        assert world.nothing_left()
    assert lossy.losses["enter"] > 900


def test_a_lost_reply_to_a_renewal_is_no_loss(world: ContractWorld, ann: Actor) -> None:
    locks, lossy = world.connect_with(Lossy)
    lost: list[object] = []
    grant = ann.do(locks.lock(world.name, ttl=2 * RENEWED, on_lost=lost.append).acquire)
    lossy.losses["renew"] = 2
    eventually(lambda: lossy.losses["renew"] == 0)
    until_renewed(grant)
    assert lost == []
    assert ann.do(grant.release) is True


def test_a_release_whose_reply_was_lost_can_be_repeated(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, lossy = world.connect_with(Lossy)
    lost: list[object] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    lossy.losses["leave"] = 1
    with pytest.raises(StoreError):
        ann.do(grant.release)
    ann.do(grant.release)
    assert world.nothing_left()
    assert grant.lost is False
    assert grant.held is False
    assert lost == []


def test_an_eviction_whose_reply_was_lost_is_counted(world: ContractWorld, locks: Any, ann: Actor) -> None:
    lossy_locks, lossy = world.connect_with(Lossy)
    grants = [ann.do(locks.rwlock(world.name).read().acquire) for _ in range(3)]
    lossy.losses["evict"] = 1
    assert ann.do(lossy_locks.evict, world.name, grants[0].id) == 1
    assert [view.id for view in world.eye.claims(world.name)] == [grant.id for grant in grants[1:]]
    lossy.losses["evict"] = 1
    assert ann.do(lossy_locks.evict, world.name) == 2
    assert ann.do(lossy_locks.evict, world.name) == 0
    assert lossy.losses["evict"] == 0


@needs("once")
def test_a_record_that_was_forgotten_by_a_lost_request_was_there(world: ContractWorld, ann: Actor) -> None:
    locks, lossy = world.connect_with(lambda store: Lossy(store, delete_run_result=1))
    assert ann.do(locks.forget, world.name) is False
    world.eye.once(world.name, keep=60).run(lambda: 1)
    lossy.losses["delete_run_result"] = 1
    assert ann.do(locks.forget, world.name) is True
    assert world.eye.claims(world.name) == []
    assert ann.do(locks.forget, world.name) is False


@pytest.mark.parametrize("error", [StoreError, Unreachable])
def test_a_claim_that_could_not_be_taken_out_is_taken_out_soon(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor, error: type[StoreError]
) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, "leave", error=error))
    holder = ann.do(kind.rival(world.connect(), world.name).acquire)
    with pytest.raises(StoreError):
        bob.do(kind.make(locks, world.name).acquire, timeout=0.1)
    assert len(world.waiters()) == 1
    failing.broken.clear()
    eventually(lambda: not world.waiters(), within=5)  # long before its lease ends
    assert ann.do(holder.release) is True


def test_close_takes_out_what_could_not_be_taken_out_before(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, "leave"))
    holder = ann.do(world.connect().lock(world.name).acquire)
    names = [world.fresh_name() for _ in range(3)]
    for name in names:
        ann.do(world.connect().lock(name).acquire)
        with pytest.raises(StoreError):
            bob.do(locks.lock(name).acquire, timeout=0.1)
    failing.broken.clear()
    bob.do(locks.close)
    assert [len(world.eye.claims(name)) for name in names] == [1, 1, 1]
    assert ann.do(holder.release) is True
