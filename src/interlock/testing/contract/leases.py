"""Leases: renewed while the holder lives, judged by its own clock from before the request, ended when not renewed."""

import time

import pytest

from interlock.claims import Terms
from interlock.testing.faults import Counting, Failing, Slow
from interlock.testing.waiting import eventually, throughout
from interlock.testing.world import KINDS, Kind, World

SOME = [each for each in KINDS if each.name in ("exclusive", "re-entrant")]
LATE = 1.5  # seconds that a busy machine and a poll may add


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
def test_a_short_lease_is_renewed_for_as_long_as_it_is_held(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann = world.actor()
    lost: list[object] = []
    grant = ann.do(kind.make(locks, world.name, ttl=0.5, on_lost=lost.append).acquire)
    throughout(1.5, lambda: [view.id for view in world.holders()] == [grant.id] and not grant.lost)
    assert ann.do(grant.release) is True
    assert lost == []


def test_many_leases_are_renewed_in_few_requests(world: World) -> None:
    locks, counting = world.connect_with(Counting)
    ann = world.actor()
    grants = [ann.do(locks.lock(world.fresh_name(), ttl=0.9).acquire) for _ in range(40)]
    deadline = time.monotonic() + 1.3
    eventually(lambda: time.monotonic() > deadline)
    assert not any(grant.lost for grant in grants)
    assert 1 <= counting.steps["renew"] <= 40


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
def test_a_lease_that_is_not_renewed_ends_after_its_ttl_and_not_before(world: World, kind: Kind) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    started = time.monotonic()
    grant = ann.do(kind.make(locks, world.name, ttl=0.4, renew=False).acquire)
    successor = bob.do(kind.rival(locks, world.name).acquire)
    assert 0.4 <= time.monotonic() - started < 0.4 + LATE
    assert grant.lost is True
    assert grant.held is False
    assert grant.expires_in == 0
    assert successor.fence > grant.fence
    assert ann.do(grant.release) is False
    assert successor.held is True


def test_a_lease_can_be_renewed_by_hand(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=0.6, renew=False)
    ann = world.actor()
    grant = ann.do(lock.acquire)
    for _ in range(3):
        eventually(lambda: grant.expires_in < 0.4)
        assert ann.do(grant.renew) is True
    assert grant.lost is False
    eventually(lambda: grant.lost)
    assert ann.do(grant.renew) is False
    world.until_free()


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
def test_the_deadline_is_counted_from_before_the_request(world: World, kind: Kind) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.3))
    ann = world.actor()
    grant = ann.do(kind.make(locks, world.name, ttl=3, renew=False).acquire)
    assert grant.expires_in <= 3 - slow.delay
    ann.do(grant.renew)
    assert grant.expires_in <= 3 - slow.delay


def test_the_holder_knows_the_end_of_its_lease_no_later_than_the_store(world: World) -> None:
    locks, _ = world.connect_with(lambda store: Slow(store, 0.15))
    ann, bob = world.actors(2)
    grant = ann.do(locks.lock(world.name, ttl=0.6, renew=False).acquire)
    successor = bob.start(world.connect().lock(world.name).acquire)
    eventually(successor.done)
    assert grant.lost is True


def test_renewals_that_fail_for_a_while_lose_nothing(world: World) -> None:
    locks, failing = world.connect_with(Failing)
    ann = world.actor()
    lost: list[object] = []
    grant = ann.do(locks.lock(world.name, ttl=1.2, on_lost=lost.append).acquire)
    failing.broken.add("renew")
    eventually(lambda: failing.refused["renew"] >= 2)
    failing.broken.clear()
    throughout(1.2, lambda: not grant.lost)
    assert lost == []
    assert ann.do(grant.release) is True


@pytest.mark.parametrize("kind", SOME, ids=lambda kind: kind.name)
def test_renewals_that_fail_until_the_deadline_lose_the_lock_and_tell(world: World, kind: Kind) -> None:
    locks, failing = world.connect_with(Failing)
    ann = world.actor()
    lost: list[object] = []
    grant = ann.do(kind.make(locks, world.name, ttl=0.5, on_lost=lost.append).acquire)
    failing.broken.add("renew")
    eventually(lambda: lost, within=0.5 + LATE)
    assert grant.lost is True
    assert len(lost) == 1
    assert [getattr(each, "id", None) for each in lost] == [grant.id]


def test_the_loss_is_known_at_the_deadline_though_a_renewal_hangs(world: World) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0, steps=("renew",)))
    ann = world.actor()
    grant = ann.do(locks.lock(world.name, ttl=0.5).acquire)
    slow.delay = 1.2
    eventually(lambda: grant.lost, within=0.5 + LATE)
    slow.delay = 0


def test_the_watchdog_survives_what_nobody_expected(world: World) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=RuntimeError))
    ann = world.actor()
    grant = ann.do(locks.lock(world.name, ttl=1.2).acquire)
    failing.broken.add("renew")
    eventually(lambda: failing.refused["renew"] >= 2)
    failing.broken.clear()
    throughout(1.2, lambda: not grant.lost)


def test_an_on_lost_that_fails_does_not_keep_others_from_being_renewed(world: World) -> None:
    locks = world.connect()
    ann = world.actor()
    calls: list[object] = []

    def fails(grant: object) -> None:
        calls.append(grant)
        raise RuntimeError("on_lost of the test")

    ann.do(locks.lock(world.name, ttl=0.4, on_lost=fails).acquire)
    other = ann.do(locks.lock(world.fresh_name(), ttl=0.5).acquire)
    world.eye.evict(world.name)
    eventually(lambda: calls)
    throughout(1.0, lambda: not other.lost)
    assert len(calls) == 1


def test_a_waiter_keeps_its_place_for_many_leases(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    grant = ann.do(locks.lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name, ttl=0.5).acquire)
    world.until_waiting(1)
    place = world.waiters()[0].id
    throughout(1.5, lambda: [view.id for view in world.waiters()] == [place])
    ann.do(grant.release)
    assert waiting.result(20).id == place


def test_a_waiter_that_died_costs_at_most_its_own_lease(world: World) -> None:
    locks = world.connect()
    ann, bob = world.actors(2)
    grant = ann.do(locks.lock(world.name).acquire)
    started = time.monotonic()
    for number in range(3):
        world.ghost(Terms(world.key(), ttl=0.6))
        world.until_waiting(number + 1)
    ann.do(grant.release)
    successor = bob.do(locks.lock(world.name).acquire)
    assert time.monotonic() - started < 0.6 + LATE
    assert successor.fence > grant.fence


def test_a_holder_that_died_costs_at_most_its_own_lease_and_nobody_spins(world: World) -> None:
    locks, counting = world.connect_with(Counting)
    started = time.monotonic()
    world.ghost(Terms(world.key(), ttl=0.8))
    jobs = [actor.start_within(locks.lock(world.name), lambda grant: None) for actor in world.actors(4)]
    for job in jobs:
        job.result(20)
    assert 0.8 <= time.monotonic() - started < 0.8 + LATE
    assert counting.steps["enter"] <= 60


def test_a_lease_that_ended_is_not_revived_by_a_late_renewal(world: World) -> None:
    locks, _ = world.connect_with(Counting)
    ann, bob = world.actors(2)
    grant = ann.do(locks.lock(world.name, ttl=0.3, renew=False).acquire)
    successor = bob.do(locks.lock(world.name).acquire)
    assert ann.do(grant.renew) is False
    assert [view.id for view in world.holders()] == [successor.id]


def test_the_lease_of_a_holder_is_shown_and_goes_on(world: World) -> None:
    lock = world.connect().lock(world.name, ttl=0.9)
    ann = world.actor()
    ann.do(lock.acquire)
    throughout(1.2, lambda: 0 < world.holders()[0].expires_in <= 0.9)
