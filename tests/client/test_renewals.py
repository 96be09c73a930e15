"""When leases are renewed."""

from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.events import EventLog
from interlock.testing.faults import Failing
from interlock.testing.waiting import eventually, throughout
from interlock.testing.world import World


def test_a_lease_is_renewed_when_a_third_has_passed_and_a_long_one_is_not(
    world: World, locks: Any, ann: Actor
) -> None:
    log = EventLog(locks.subscribe)
    brief = ann.do(locks.lock(world.name, ttl=1.5).acquire)
    long = ann.do(locks.lock(world.fresh_name(), ttl=60).acquire)
    throughout(1.4, lambda: brief.held)
    renewed = [event for event in log.events if event.kind == "renewed"]
    assert {event.id for event in renewed} == {brief.id}
    assert 1 <= len(renewed) <= 2
    assert renewed[0].held >= 0.45
    assert ann.do(brief.release) is ann.do(long.release) is True


def test_a_renewal_that_failed_is_tried_again_soon(world: World, ann: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=StoreError))
    log = EventLog(locks.subscribe)
    grant = ann.do(locks.lock(world.name, ttl=3).acquire)
    failing.broken.add("renew")
    eventually(lambda: log.kinds().count("renewal failed") >= 3)
    failing.broken.clear()
    eventually(lambda: "renewed" in log.kinds())
    assert grant.held
    assert ann.do(grant.release) is True


@pytest.mark.parametrize("options", [{}, {"at_least": 0.01}, {"at_most": 60}], ids=["plain", "at least", "at most"])
def test_a_brief_hold_is_not_renewed(world: World, locks: Any, ann: Actor, options: dict[str, float]) -> None:
    log = EventLog(locks.subscribe)
    ann.do(ann.do(locks.lock(world.name, **options).acquire).release)
    assert log.kinds() == ["acquired", "released"]


def test_a_lease_that_ended_has_no_seconds_left(world: World, locks: Any, ann: Actor) -> None:
    grant = ann.do(locks.lock(world.name, ttl=0.1, renew=False).acquire)
    eventually(lambda: grant.lost)
    assert grant.expires_in == 0
