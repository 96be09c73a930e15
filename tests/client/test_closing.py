"""close() while the server is unavailable: one attempt instead of one for each claim; the leases then expire."""

import pytest

from interlock.core.errors import StoreError
from interlock.remote.failures import NoAnswer, Unreachable
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing
from interlock.testing.world import World


@pytest.mark.parametrize(("error", "times"), [(NoAnswer, 1), (Unreachable, 1), (StoreError, 3)])
def test_a_server_that_is_away_is_asked_once(world: World, ann: Actor, error: type[StoreError], times: int) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=error))
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(error, match="by order of the test"):
        ann.do(locks.close)
    assert (failing.refused["leave"], failing.closed, len(grants)) == (times, True, 3)
