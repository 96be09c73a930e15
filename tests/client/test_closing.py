"""close() while the server is unavailable: one attempt instead of one for each claim; the leases then expire."""

import threading

import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.core.failures import NoAnswer, Unreachable
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually


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


@of_threads
def test_a_stale_claim_is_withdrawn_though_no_thread_could_start(
    world: ContractWorld, bob: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, refused = threading.Thread.start, list[str]()

    def refusing(thread: threading.Thread) -> None:
        if thread.name == "interlock-take-out" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    locks, failing = world.connect_with(lambda store: Failing(store, "leave"))
    with world.eye.lock(world.name):
        monkeypatch.setattr(threading.Thread, "start", refusing)
        with pytest.raises(StoreError, match="by order of the test"):
            bob.do(locks.lock(world.name).acquire, timeout=0.1)
        eventually(lambda: refused)
        failing.broken.clear()
        eventually(lambda: len(world.eye.claims(world.name)) == 1, within=10.0)  # the lease would end after 30 s


def test_an_id_that_is_empty_evicts_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may give it by mistake; Redis and PostgreSQL take it for all claims."""
    with interlock.connect("memory://evicted") as locks:
        monkeypatch.setattr(locks._client.state().queue, "evict", lambda key, id: 1)
        assert (locks.evict("a", ""), locks.evict("a", "some"), locks.evict("a")) == (0, 1, 1)
