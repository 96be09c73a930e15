"""Leases: renewed while the holder lives, counted from before the request, expired when not renewed."""

import time
from typing import Any

import pytest

from interlock.core.claims import LockSpec
from interlock.testing.actors import Actor, results
from interlock.testing.faults import Busy, Counting, Failing, Slow
from interlock.testing.store_fixture import KINDS, ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, Stalls, eventually, lasting, moment, since, throughout, until_renewed

TESTED_KINDS = [each for each in KINDS if each.name in ("exclusive", "re-entrant")]
MACHINE_DELAY = 1.5  # seconds of delay by a busy machine and a poll


@pytest.mark.parametrize("kind", TESTED_KINDS, ids=lambda kind: kind.name)
def test_a_short_lease_is_renewed_for_as_long_as_it_is_held(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    lost: list[object] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    throughout(RENEWED + 0.5, lambda: [view.id for view in world.holders()] == [grant.id] and not grant.lost)
    assert ann.do(grant.release) is True
    assert lost == []


def test_each_renewal_is_asked_for_at_a_third_of_the_lease(world: ContractWorld) -> None:
    locks, counting = world.connect_with(Counting)
    grant = world.actor().do(locks.lock(world.name, ttl=2.4).acquire)
    eventually(lambda: counting.steps["renew"] >= 2, within=2.6)  # due after 0.8 and 1.6 seconds
    assert grant.held is True


def test_many_leases_are_renewed_in_few_requests(world: ContractWorld, ann: Actor) -> None:
    locks, counting = world.connect_with(Counting)
    grants = [ann.do(locks.lock(world.fresh_name(), ttl=2 * RENEWED).acquire) for _ in range(40)]
    began, before = time.monotonic(), counting.steps["renew"]
    until_renewed(grants[0], 3)
    thirds = 1 + (time.monotonic() - began) / (2 * RENEWED / 3)
    assert not any(grant.lost for grant in grants)
    assert 1 <= counting.steps["renew"] - before <= 10 * thirds


@pytest.mark.parametrize("kind", TESTED_KINDS, ids=lambda kind: kind.name)
def test_an_unrenewed_lease_ends_after_its_ttl_and_not_before(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    with lasting(0.4, MACHINE_DELAY):
        grant = ann.do(kind.make(locks, world.name, ttl=0.4, renew=False).acquire)
        successor = bob.do(kind.rival(locks, world.name).acquire)
    assert grant.lost is True
    assert grant.held is False
    assert grant.expires_in == 0
    assert successor.fence > grant.fence
    assert ann.do(grant.release) is False
    assert successor.held is True


@pytest.mark.parametrize("kind", TESTED_KINDS, ids=lambda kind: kind.name)
def test_the_deadline_is_counted_from_before_the_request(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.3))
    grant = ann.do(kind.make(locks, world.name, ttl=3, renew=False).acquire)
    assert grant.expires_in <= 3 - slow.delay
    ann.do(grant.renew)
    assert grant.expires_in <= 3 - slow.delay


def test_a_watchdog_renewal_counts_from_before_the_request(world: ContractWorld) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.3, steps=("renew",)))
    grant = world.actor().do(locks.lock(world.name, ttl=2.4).acquire)
    seen = [grant.expires_in]

    def renewed() -> bool:
        seen.append(grant.expires_in)
        return bool(seen[-1] > seen[-2])

    eventually(renewed)
    assert seen[-1] <= 2.4 - slow.delay


def test_a_store_that_is_busy_extends_no_lease(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, busy = world.connect_with(Busy)
    held = ann.do(world.connect().lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name, ttl=2.1, renew=False).acquire)
    eventually(lambda: busy.times)
    ann.do(held.release)
    released = time.monotonic()
    eventually(lambda: waiting.done() or time.monotonic() > released + 0.3)  # without a notification the waiter polls
    busy.busy = False
    grant = waiting.result(20)
    began, own = time.monotonic(), grant.expires_in
    (view,) = world.holders()
    # A store's clock is known to half a round trip; had the lease grown, it would be three times as much.
    assert own <= view.expires_in + (time.monotonic() - began) + 0.1


def test_the_holder_sees_its_lease_end_no_later_than_the_store(world: ContractWorld, ann: Actor, bob: Actor) -> None:
    locks, _ = world.connect_with(lambda store: Slow(store, 0.15))
    grant = ann.do(locks.lock(world.name, ttl=0.6, renew=False).acquire)
    successor = bob.start(world.connect().lock(world.name).acquire)
    eventually(successor.done)
    assert grant.lost is True


def test_renewals_that_fail_for_a_while_lose_nothing(world: ContractWorld, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    lost: list[object] = []
    grant = ann.do(locks.lock(world.name, ttl=2 * RENEWED, on_lost=lost.append).acquire)
    failing.broken.add("renew")
    eventually(lambda: failing.refused["renew"] >= 2)
    failing.broken.clear()
    until_renewed(grant)
    assert lost == []
    assert ann.do(grant.release) is True


@pytest.mark.parametrize("kind", TESTED_KINDS, ids=lambda kind: kind.name)
def test_failed_renewals_lose_the_lock_at_the_deadline(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    lost: list[object] = []
    grant = ann.do(kind.make(locks, world.name, ttl=0.5, on_lost=lost.append).acquire)
    failing.broken.add("renew")
    eventually(lambda: lost, within=0.5 + MACHINE_DELAY)
    assert grant.lost is True
    assert len(lost) == 1
    assert [getattr(each, "id", None) for each in lost] == [grant.id]


def test_a_loss_is_reported_on_time_while_a_renewal_hangs(world: ContractWorld) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 1.4, steps=("renew",)))
    heard: list[float] = []
    lock = locks.lock(world.name, ttl=0.6, on_lost=lambda _: heard.append(time.monotonic()))
    with Stalls() as machine:
        grant = world.actor().do(lock.acquire)
        deadline = time.monotonic() + grant.expires_in
        eventually(lambda: heard)
    assert heard[0] >= deadline
    # The loss was reported before the reply, which says that the lease was renewed.
    assert machine.between(deadline, heard[0]) < slow.delay / 2
    throughout(deadline + 1.0 - time.monotonic(), lambda: grant.lost)  # the late reply does not change that
    assert len(heard) == 1


def test_a_waiter_keeps_its_place_for_many_leases(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    waiting = world.in_line(bob.start, locks.lock(world.name, ttl=RENEWED).acquire)
    place = world.waiters()[0].id
    throughout(RENEWED + 0.5, lambda: [view.id for view in world.waiters()] == [place])
    ann.do(grant.release)
    assert waiting.result(20).id == place


def test_a_waiter_that_died_costs_at_most_its_own_lease(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    started = moment()
    ghosts = [world.stale_claim(LockSpec(world.key(), ttl=RENEWED)) for _ in range(3)]
    # If entering takes long, the first claim has expired when the last one enters.
    eventually(lambda: len(world.waiters()) == len(ghosts) or since(started) > RENEWED)
    ann.do(grant.release)
    successor = bob.do(locks.lock(world.name).acquire)
    assert since(started) < RENEWED + MACHINE_DELAY
    assert successor.fence > grant.fence


def test_a_dead_holder_costs_at_most_its_lease_without_spinning(world: ContractWorld) -> None:
    locks, counting = world.connect_with(Counting)
    with lasting(0.8, MACHINE_DELAY):
        world.stale_claim(LockSpec(world.key(), ttl=0.8))
        results([actor.start_within(locks.lock(world.name), lambda grant: None) for actor in world.actors(4)])
    assert counting.steps["enter"] <= 60
