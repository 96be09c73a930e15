"""The view from outside: holders and waiters, eviction, and the doctor."""

import os
import socket
import time
from functools import partial
from typing import Any

import pytest

from interlock.core.claims import Check, ClaimView
from interlock.core.errors import LockLost
from interlock.testing.actors import Actor, results
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import SET_BACK, eventually


def test_a_claim_tells_who_it_is(world: ContractWorld, locks: Any, ann: Actor) -> None:
    before = time.time()
    grant = ann.do(locks.lock(world.name, ttl=12, label="shelf 3: ünïcode").acquire)
    after = time.time()
    (view,) = ann.do(locks.claims, world.name)
    assert isinstance(view, ClaimView)
    assert (view.name, view.id, view.state, view.fence) == (world.name, grant.id, "using", grant.fence)
    assert (view.units, view.capacity, view.kind) == (1, 1, "exclusive")
    assert (view.host, view.pid, view.label) == (socket.gethostname(), os.getpid(), "shelf 3: ünïcode")
    assert view.thread
    assert view.since is not None
    assert before - 1 <= view.since <= after + 1
    assert 0 < view.expires_in <= 12 + SET_BACK


def held_by(world: ContractWorld, id: str) -> list[ClaimView]:
    """Return the claim `id` if it holds the lock."""
    return [view for view in world.holders() if view.id == id]


def test_a_claim_shows_since_when_it_waits_and_holds(
    world: ContractWorld, ann: Actor, bob: Actor, eve: Actor
) -> None:
    lock = world.connect().lock(world.name)
    grant = ann.do(lock.acquire)
    waiting = [world.in_line(actor.start, lock.acquire) for actor in (bob, eve)]
    until = time.monotonic() + 0.4
    eventually(lambda: time.monotonic() > until)
    assert [(view.held_since, view.waiting_since == view.since) for view in world.waiters()] == [(None, True)] * 2
    for actor, successor in zip((ann, bob), waiting, strict=True):
        before = time.time()
        actor.do(grant.release)
        grant = successor.result(20)
        (view,) = eventually(partial(held_by, world, grant.id))
        if view.held_since is not None:  # optional for a store
            error = world.place.clock_error
            assert before - error <= view.held_since <= time.time() + error
            assert view.held_since - (view.waiting_since or 0.0) >= 0.3


def test_holders_come_first_then_waiters_in_line(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    grant = ann.do(locks.lock(world.name, label="ann").acquire)
    first = world.in_line(bob.start, locks.lock(world.name, label="bob").acquire)
    second = world.in_line(eve.start, locks.lock(world.name, label="eve").acquire)
    seen = [(view.label, view.state, view.fence is None) for view in ann.do(locks.claims, world.name)]
    assert seen == [("ann", "using", False), ("bob", "pending", True), ("eve", "pending", True)]
    ann.do(grant.release)
    bob.do(first.result(20).release)
    eve.do(second.result(20).release)


def test_claims_of_all_names(world: ContractWorld, locks: Any, ann: Actor) -> None:
    names = sorted(world.fresh_name() for _ in range(5))
    grants = [ann.do(locks.lock(name).acquire) for name in names]
    assert sorted(view.name for view in ann.do(locks.claims)) == names
    for grant in grants:
        ann.do(grant.release)
    assert ann.do(locks.claims) == []


def test_evicting_a_holder_lets_the_next_in_at_once(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(kind.rival(locks, world.name).acquire)
    waiting = world.in_line(bob.start, kind.make(locks, world.name).acquire)
    assert world.eye.evict(world.name, grant.id) == 1
    successor = waiting.result(5)
    assert successor.fence > grant.fence
    assert ann.do(grant.release) is False
    with pytest.raises(LockLost):
        grant.check()
    assert [view.id for view in world.holders()] == [successor.id]


def test_an_evicted_waiter_begins_again_at_the_end_of_the_line(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor, eve: Actor
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    order: list[str] = []
    first = world.in_line(bob.start_within, locks.lock(world.name), lambda grant: order.append("bob"))
    evicted = world.waiters()[0].id
    second = world.in_line(eve.start_within, locks.lock(world.name), lambda grant: order.append("eve"))
    assert world.eye.evict(world.name, evicted) == 1
    # The waiter is notified, before its next heartbeat.
    eventually(lambda: len(world.waiters()) == 2 and evicted not in [view.id for view in world.waiters()], within=3)
    ann.do(grant.release)
    results([first, second])
    assert order == ["eve", "bob"]


def test_evict_counts_what_it_removed(world: ContractWorld, locks: Any, ann: Actor) -> None:
    assert ann.do(locks.evict, world.name) == 0
    lock = locks.semaphore(world.name, 5)
    grants = [ann.do(lock.acquire) for _ in range(4)]
    assert ann.do(locks.evict, world.name, "nobody has this id") == 0
    assert ann.do(locks.evict, world.name, grants[0].id) == 1
    assert ann.do(locks.evict, world.name, grants[0].id) == 0
    assert ann.do(grants[1].renew) is True
    assert ann.do(locks.evict, world.name) == 3
    assert world.nothing_left()


def test_the_doctor_finds_a_good_store_good_and_leaves_nothing(world: ContractWorld, locks: Any, ann: Actor) -> None:
    others = {view.id for view in world.eye.claims()}  # claims of earlier tests, if the place is shared
    grant = ann.do(locks.lock(world.name).acquire)
    checks = ann.do(locks.doctor)
    assert checks
    assert all(isinstance(check, Check) and check.name and check.detail for check in checks)
    assert {check.status for check in checks} <= {"ok", "warn"}, checks
    assert {view.id for view in world.eye.claims()} - others == {grant.id}
    assert ann.do(grant.release) is True
