"""Calling off: `acquire(cancel=…)`."""

import threading
from typing import Any

import pytest

from interlock.client.cancel import Cancel
from interlock.core.errors import InvalidArgument
from interlock.testing.actors import Actor
from interlock.testing.world import World


@pytest.mark.parametrize("kind", [Cancel, threading.Event], ids=["Cancel", "Event"])
def test_an_acquire_that_waits_is_called_off(world: World, kind: Any, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    cancel = kind()
    waiting = bob.start(world.connect().lock(world.name).acquire, cancel=cancel)
    if "detach" in locks.store.features:
        world.until_waiting(1)
    cancel.set()
    assert waiting.result(20) is None
    assert not world.waiters()
    assert bob.do(locks.lock(world.name).acquire, cancel=cancel) is None
    ann.do(grant.release)
    assert world.nothing_left()
    assert bob.do(locks.lock(world.name).acquire, cancel=kind()).held


def test_all_and_rlock_are_called_off_too(world: World, locks: Any, ann: Actor, bob: Actor) -> None:
    grant = ann.do(locks.lock(world.name).acquire)
    other = world.fresh_name()
    for lock in (locks.all(other, world.name), locks.rlock(world.name)):
        cancel = Cancel()
        waiting = bob.start(lock.acquire, cancel=cancel)
        if "detach" in locks.store.features:
            world.until_waiting(1)
        cancel.set()
        assert waiting.result(20) is None
    ann.do(grant.release)
    assert world.eye.claims(world.name) == world.eye.claims(other) == []


def test_what_cant_be_asked_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="is_set"):
        world.actor().do(world.connect().lock(world.name).acquire, cancel=1)
