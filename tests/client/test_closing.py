"""close() while the server is unavailable: one attempt instead of one for each claim; the leases then expire."""

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.core.failures import NoAnswer, Unreachable
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld


@pytest.mark.parametrize(("error", "times"), [(NoAnswer, 1), (Unreachable, 1), (StoreError, 3)])
def test_a_server_that_is_away_is_asked_once(
    world: ContractWorld, ann: Actor, error: type[StoreError], times: int
) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=error))
    grants = [ann.do(locks.lock(world.fresh_name()).acquire) for _ in range(3)]
    failing.broken.add("leave")
    with pytest.raises(error, match="by order of the test"):
        ann.do(locks.close)
    assert (failing.refused["leave"], failing.closed, len(grants)) == (times, True, 3)


def test_an_unverified_lock_is_not_renewed_after_failed_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with interlock.connect("memory://doubted") as locks:
        monkeypatch.setattr("interlock.client._sync.client.rt.fresh_id", lambda: "in doubt")
        state = locks._client.state()
        state.watchdog.verify_soon("in doubt")
        grant = locks.lock("a").acquire()
        with monkeypatch.context() as away:
            away.setattr(state.queue, "leave", lambda *_: (_ for _ in ()).throw(StoreError("away")))
            with pytest.raises(StoreError, match="away"):
                grant.release()
        assert grant._due == grant._deadline
        grant.release()


def test_an_id_that_is_empty_evicts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may give it by mistake; Redis and PostgreSQL take it for all claims."""
    with interlock.connect("memory://evicted") as locks:
        monkeypatch.setattr(locks._client.state().queue, "evict", lambda key, id: 1)
        assert (locks.evict("a", ""), locks.evict("a", "some"), locks.evict("a")) == (0, 1, 1)
