"""Listeners of events, and the log: a listener that fails or hangs does not delay others."""

import logging
from typing import Any

import pytest

from interlock.client.events import Event, subscribe
from interlock.core.errors import InvalidArgument
from interlock.testing.actors import Actor
from interlock.testing.contract.events import EventLog
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually


def test_only_the_unsubscribed_listener_gets_no_more_events(world: ContractWorld, locks: Any, ann: Actor) -> None:
    first, second = EventLog(locks.subscribe), EventLog(locks.subscribe)
    lock = locks.lock(world.name)
    ann.do(ann.do(lock.acquire).release)
    first.stop()
    first.stop()
    ann.do(ann.do(lock.acquire).release)
    assert first.kinds() == ["acquired", "released"]
    assert second.kinds() == ["acquired", "released"] * 2


def test_one_connection_is_heard_and_all_are_heard(world: ContractWorld, ann: Actor) -> None:
    mine, other = world.connect(), world.connect()
    here = EventLog(mine.subscribe)
    everywhere = EventLog(subscribe)
    try:
        for locks in mine, other:
            ann.do(ann.do(locks.lock(world.name).acquire).release)
    finally:
        everywhere.stop()
    ann.do(ann.do(other.lock(world.name).acquire).release)
    assert here.kinds() == ["acquired", "released"]
    assert [event.kind for event in everywhere.events if event.name == world.name] == ["acquired", "released"] * 2


def test_a_listener_that_fails_is_logged_and_holds_back_nobody(
    world: ContractWorld, caplog: pytest.LogCaptureFixture, locks: Any
) -> None:

    def fails(event: Event) -> None:
        raise KeyError(event.kind)

    locks.subscribe(fails)
    heard = EventLog(locks.subscribe)
    ann, bob = world.actors(2)
    with caplog.at_level(logging.ERROR, "interlock"):
        lock = locks.lock(world.name, ttl=RENEWED)
        grant = ann.do(lock.acquire)
        waiting = bob.start(lock.acquire)
        heard.first("queued")
        renewals = eventually(lambda: heard.kinds().count("renewed") >= 3)
        assert renewals
        assert grant.held
        assert ann.do(grant.release) is True
        second = waiting.result(20)
        world.eye.evict(world.name)
        heard.first("lost")
        assert second.lost
    failed = {record.exc_info[1].args[0] for record in caplog.records if record.exc_info and record.exc_info[1]}
    assert failed >= {"queued", "acquired", "renewed", "released", "lost"}
    assert world.nothing_left()


@of_threads
def test_a_hanging_listener_delays_no_renewal_of_threads(world: ContractWorld, locks: Any, ann: Actor) -> None:
    gate = world.gate()
    hung: list[Event] = []

    def hangs(event: Event) -> None:
        if event.kind == "renewed":
            hung.append(event)
            gate.wait()

    stop = locks.subscribe(hangs)
    grant = ann.do(locks.lock(world.name, ttl=RENEWED).acquire)
    try:
        eventually(lambda: len(hung) >= 3)
        assert grant.held
    finally:
        stop()
        gate.open()
    assert ann.do(grant.release) is True


def test_what_can_not_be_called_is_refused_as_a_listener(world: ContractWorld) -> None:
    with pytest.raises(InvalidArgument, match="listener"):
        world.connect().subscribe("a function")
    with pytest.raises(InvalidArgument, match="listener"):
        subscribe(None)  # type: ignore[arg-type]
