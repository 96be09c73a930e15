"""Events: listeners of one client or of all clients receive the events of claims, without delays."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from interlock.client.events import Event
from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks
from interlock.testing.faults import Failing
from interlock.testing.store_fixture import ContractWorld, LockKind
from interlock.testing.waiting import RENEWED, eventually


class EventLog:
    """The events of a client, in the order of arrival."""

    def __init__(self, source: Callable[[Any], Callable[[], None]]) -> None:
        self.events: list[Event] = []
        self.stop = source(self.events.append)

    def kinds(self) -> list[str]:
        """Return the kinds of the events."""
        return [event.kind for event in self.events]

    def first(self, kind: str) -> Event:
        """Wait for an event of that kind and return the first one."""
        return eventually(lambda: [event for event in self.events if event.kind == kind])[0]


def test_acquire_and_release_are_told_with_what_they_are_about(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor
) -> None:
    heard = EventLog(locks.subscribe)
    grant = ann.do(kind.make(locks, world.name, label="a shelf").acquire)
    ann.do(grant.release)
    acquired, released = heard.events
    assert acquired[:5] == ("acquired", world.name, grant.id, grant.fence, "a shelf")
    assert released[:5] == ("released", world.name, grant.id, grant.fence, "a shelf")
    assert (acquired.waited or 0) > 0
    assert acquired.held is None
    assert (released.held or 0) > 0
    assert released.waited is None
    assert ann.do(grant.release) is False
    assert len(heard.events) == 2


def test_a_waiter_is_told_as_queued_and_then_as_acquired(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    rival = kind.rival(world.connect(), world.name)
    heard = EventLog(locks.subscribe)
    ann.do(rival.acquire)
    waiting = world.in_line(bob.start, kind.make(locks, world.name).acquire)
    assert heard.first("queued")[:4] == ("queued", world.name, world.waiters()[0].id, None)
    ann.do(rival.release)
    grant = waiting.result(20)
    assert heard.kinds() == ["queued", "acquired"]
    assert heard.events[1].id == heard.events[0].id == grant.id
    assert heard.events[1].waited >= heard.events[0].waited > 0  # type: ignore[operator]
    bob.do(grant.release)


def test_a_wait_that_is_too_long_and_a_try_in_vain_are_told(
    world: ContractWorld, kind: LockKind, locks: Any, ann: Actor, bob: Actor
) -> None:
    rival = kind.rival(world.connect(), world.name)
    heard = EventLog(locks.subscribe)
    ann.do(rival.acquire)
    lock = kind.make(locks, world.name)
    assert bob.do(lock.acquire, timeout=0.2) is None
    assert heard.kinds() == ["queued", "timed out"]
    assert heard.events[1].id == heard.events[0].id
    assert heard.events[1].waited >= 0.2  # type: ignore[operator]
    assert bob.do(lock.acquire, blocking=False) is None
    assert heard.kinds() == ["queued", "timed out", "timed out"]
    ann.do(rival.release)


def test_the_evictor_reports_the_eviction_the_holder_the_loss(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    holders, evictors = world.connect(), world.connect()
    heard, evictor_heard = EventLog(holders.subscribe), EventLog(evictors.subscribe)
    grant = ann.do(kind.make(holders, world.name, ttl=RENEWED, label="a shelf").acquire)
    assert bob.do(evictors.evict, world.name, grant.id) == 1
    (evicted,) = evictor_heard.events
    assert evicted[:5] == ("evicted", world.name, grant.id, grant.fence, "a shelf")
    lost = heard.first("lost")
    assert lost[:5] == ("lost", world.name, grant.id, grant.fence, "a shelf")
    assert "evicted" in lost.reason
    assert (lost.held or 0) > 0
    assert ann.do(grant.release) is False
    assert "evicted" not in heard.kinds()
    assert heard.kinds().count("lost") == 1
    assert "released" not in heard.kinds()
    assert bob.do(evictors.evict, world.name) == 0
    assert len(evictor_heard.events) == 1


def test_a_loss_found_by_a_release_is_reported_once_and_logged(
    world: ContractWorld, caplog: pytest.LogCaptureFixture, locks: Any, ann: Actor
) -> None:
    heard = EventLog(locks.subscribe)
    grant = ann.do(locks.lock(world.name).acquire)
    world.eye.evict(world.name)
    with caplog.at_level(logging.WARNING, "interlock"):
        assert ann.do(grant.release) is False
        assert ann.do(grant.release) is False
        assert heard.first("lost")  # on a slow machine a renewal may have found it first, and reports it
    assert heard.kinds() == ["acquired", "lost"]
    assert heard.events[1].reason
    assert [repr(world.name) in message for message in caplog.messages] == [True]


def test_renewals_are_told_those_by_hand_too(world: ContractWorld, locks: Any, ann: Actor) -> None:
    heard = EventLog(locks.subscribe)
    by_hand = ann.do(locks.lock(world.fresh_name(), ttl=30, renew=False).acquire)
    assert ann.do(by_hand.renew) is True
    assert [event.id for event in heard.events if event.kind == "renewed"] == [by_hand.id]
    grant = ann.do(locks.lock(world.name, ttl=RENEWED).acquire)
    renewed = eventually(lambda: [event for event in heard.events if event[:3] == ("renewed", world.name, grant.id)])
    assert renewed[0].fence == grant.fence
    assert (renewed[0].held or 0) > 0


def test_a_renewal_that_fails_is_told_and_tried_again(world: ContractWorld, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    heard = EventLog(locks.subscribe)
    failing.broken.add("renew")
    grant = ann.do(locks.lock(world.name, ttl=2 * RENEWED).acquire)
    failed = heard.first("renewal failed")
    failing.broken.clear()
    assert failed[:4] == ("renewal failed", world.name, grant.id, grant.fence)
    assert failed.reason
    assert heard.first("renewed").id == grant.id
    assert ann.do(grant.release) is True


def test_a_waiter_of_a_closed_connection_is_reported_withdrawn(
    world: ContractWorld, ann: Actor, bob: Actor, eve: Actor
) -> None:
    holder = world.connect().lock(world.name)
    ann.do(holder.acquire)
    locks = world.connect()
    heard = EventLog(locks.subscribe)
    waiting = bob.start(locks.lock(world.name).acquire)
    queued = heard.first("queued")
    eve.do(locks.close)
    with pytest.raises(StoreError):
        waiting.result(20)
    assert heard.kinds() == ["queued", "withdrawn"]
    assert heard.events[1].id == queued.id
    assert "closed" in heard.events[1].reason
    ann.do(holder.release)


@of_tasks
def test_a_waiting_task_that_is_cancelled_is_told_as_withdrawn(world: ContractWorld, ann: Actor) -> None:
    holder = world.connect().lock(world.name)
    ann.do(holder.acquire)
    locks = world.connect()
    heard = EventLog(locks.subscribe)

    async def story() -> None:
        waiting = asyncio.ensure_future(locks.lock(world.name).acquire())
        while not heard.events:  # noqa: ASYNC110 - a list has no event to wait for
            await asyncio.sleep(0.001)
        waiting.cancel()
        await waiting

    with pytest.raises((asyncio.CancelledError, CancelledError)):
        world.run(story())
    assert heard.kinds() == ["queued", "withdrawn"]
    ann.do(holder.release)
