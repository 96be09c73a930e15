"""When leases are renewed, and how long a run is waited for."""

from typing import Any

import pytest

from interlock.core.errors import LockTimeout, StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.events import EventLog
from interlock.testing.contract.once import Work
from interlock.testing.faults import Failing, Partial, Slow
from interlock.testing.store_fixture import THREADS, ContractWorld
from interlock.testing.waiting import eventually, lasting, throughout


def test_a_lease_is_renewed_after_a_third_of_its_time(world: ContractWorld, locks: Any, ann: Actor) -> None:
    log = EventLog(locks.subscribe)
    brief = ann.do(locks.lock(world.name, ttl=1.5).acquire)
    long = ann.do(locks.lock(world.fresh_name(), ttl=60).acquire)
    throughout(1.4, lambda: brief.held)
    renewed = [event for event in log.events if event.kind == "renewed"]
    assert [event.id for event in renewed] in ([brief.id], [brief.id] * 2)
    assert renewed[0].held >= 0.45
    assert ann.do(brief.release) is ann.do(long.release) is True


def test_a_failed_renewal_is_retried_soon_without_spinning(world: ContractWorld, ann: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=StoreError))
    log = EventLog(locks.subscribe)
    grant = ann.do(locks.lock(world.name, ttl=3).acquire)
    failing.broken.add("renew")
    eventually(lambda: log.kinds().count("renewal failed") >= 3)
    assert failing.refused["renew"] < 9
    failing.broken.clear()
    eventually(lambda: "renewed" in log.kinds())
    assert (grant.held, ann.do(grant.release)) == (True, True)


def test_the_failed_one_of_several_renewals_is_retried_soon(world: ContractWorld, ann: Actor) -> None:
    locks, partial = world.connect_with(Partial)
    log = EventLog(locks.subscribe)
    partial.names.add(world.name)
    grants = [ann.do(locks.lock(name, ttl=2).acquire) for name in (world.name, world.fresh_name())]
    eventually(lambda: {"renewed", "renewal failed"} <= set(log.kinds()))
    partial.names.clear()
    eventually(lambda: log.first("renewal failed").id in [each.id for each in log.events if each.kind == "renewed"])
    assert [ann.do(grant.release) for grant in grants] == [True, True]


def test_a_renewal_is_not_sent_again_while_its_reply_is_late(world: ContractWorld, ann: Actor) -> None:
    locks, slow = world.connect_with(lambda store: Slow(store, 0.5, ("renew",)))
    grant = ann.do(locks.lock(world.name, ttl=3).acquire)
    eventually(lambda: slow.done)
    throughout(0.4, lambda: grant.held)
    assert (slow.done, ann.do(grant.release)) == (1, True)


@pytest.mark.parametrize("options", [{}, {"at_least": 0.01}, {"at_most": 60}], ids=["plain", "at least", "at most"])
def test_a_brief_hold_is_not_renewed(world: ContractWorld, locks: Any, ann: Actor, options: dict[str, float]) -> None:
    log = EventLog(locks.subscribe)
    ann.do(ann.do(locks.lock(world.name, **options).acquire).release)
    assert log.kinds() == ["acquired", "released"]


def test_a_lease_that_ended_has_no_seconds_left(world: ContractWorld, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.lock(world.name, ttl=0.1, renew=False).acquire)
    eventually(lambda: grant.lost)
    assert grant.expires_in == 0


def test_releasing_an_evicted_lock_is_false_within_at_least(world: ContractWorld, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.lock(world.name, ttl=1, at_least=1, renew=False).acquire)
    assert ann.do(locks.evict, world.name) == 1
    assert ann.do(grant.release) is False


def test_a_run_elsewhere_is_waited_for_no_longer_than_was_said(
    world: ContractWorld, locks: Any, ann: Actor, bob: Actor
) -> None:
    ann.do(world.connect().lock(world.name).acquire)
    with lasting(0.2, 0.6), pytest.raises(LockTimeout):
        bob.do(locks.once(world.name, keep=9, timeout=0.2).run, Work(world).function)


def test_a_run_inside_a_run_of_the_same_is_skipped(world: ContractWorld, locks: Any, ann: Actor) -> None:
    once = locks.once(world.name, keep=9, on_busy="skip")
    begin, end = ("__enter__", "__exit__") if world.sync_or_async == THREADS else ("__aenter__", "__aexit__")
    assert [ann.do(getattr(once, begin)).due for _ in range(2)] == [True, False]
    for _ in range(2):
        ann.do(getattr(once, end), None, None, None)
