"""close() at a server that is away: what would hang at each claim is tried once, and the leases do the rest."""

import pytest

from interlock.core.errors import StoreError
from interlock.remote.failures import NoAnswer, Unreachable
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing
from interlock.testing.world import World


@pytest.mark.parametrize("error", [NoAnswer, Unreachable])
def test_a_server_that_is_away_is_asked_once(world: World, ann: Actor, error: type[StoreError]) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=error))
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(error, match="by order of the test"):
        ann.do(locks.close)
    assert failing.refused["leave"] == 1
    assert failing.closed is True
    assert len(grants) == 3


def test_waiters_whose_server_is_away_are_asked_for_once(world: World, ann: Actor, bob: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=NoAnswer))
    held = ann.do(world.connect().lock(world.name).acquire)
    waiting = bob.start(locks.lock(world.name).acquire)
    world.until_waiting(1)
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(NoAnswer):
        ann.do(locks.close)
    with pytest.raises(StoreError):
        waiting.result(10)
    assert failing.refused["leave"] <= 2  # the waiter's own, and one of the three
    assert len(grants) == 3
    assert held.held


def test_a_server_that_refuses_one_claim_is_asked_for_each(world: World, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(StoreError):
        ann.do(locks.close)
    assert failing.refused["leave"] == len(grants)
