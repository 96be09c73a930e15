"""`at_most`, which ends a hold although its holder lives, and `wanted`, which says that another claim waits."""

import threading
import time
from typing import Any

import pytest

from interlock.core.errors import LockLost, Unsupported
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import RENEWED, eventually


def test_at_most_ends_a_hold_at_its_moment(world: ContractWorld, locks: Any, ann: Actor) -> None:
    told = threading.Event()
    began = time.monotonic()
    grant = ann.do(locks.lock(world.name, ttl=600, at_most=0.5, on_lost=lambda grant: told.set()).acquire)
    assert 0 < grant.expires_in <= 0.5
    assert ann.do(grant.renew) is True
    assert grant.expires_in <= 0.5
    assert told.wait(20)
    assert time.monotonic() - began >= 0.5
    with pytest.raises(LockLost, match="at_most"):
        grant.check()
    world.until_free()


def test_at_most_counts_for_all_handles_of_a_hold(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().rlock(world.name, ttl=600, at_most=0.5)
    first, second = ann.do(lock.acquire), ann.do(lock.acquire)
    eventually(lambda: first.lost and second.lost)
    world.until_free()


def test_at_most_is_no_reason_to_hold_longer_than_that(world: ContractWorld, ann: Actor) -> None:
    grant = ann.do(world.connect().lock(world.name, at_most=30, ttl=RENEWED, renew=False).acquire)
    eventually(lambda: grant.lost)


def test_a_holder_learns_that_somebody_waits(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    told = threading.Event()
    if "wanted" not in locks.store.features:
        with pytest.raises(Unsupported, match="postgresql://"):
            locks.lock(world.name, on_wanted=lambda grant: told.set())
        grant = ann.do(locks.lock(world.name).acquire)
        with pytest.raises(Unsupported, match="postgresql://"):
            _ = grant.wanted
        return
    grant = ann.do(locks.lock(world.name, ttl=RENEWED, on_wanted=lambda grant: told.set()).acquire)
    assert ann.do(grant.renew) is True
    assert grant.wanted is False
    waiting = bob.start(locks.lock(world.name).acquire)
    assert told.wait(20)
    assert grant.wanted is True
    ann.do(grant.release)
    assert waiting.result(20).wanted is False
