"""Loss acts: the grant knows, `check` raises, and `with` raises on leaving."""

import asyncio
import logging
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.testing.actors import Actor
from interlock.testing.faults import Failing
from interlock.testing.waiting import RENEWED, eventually, until_renewed
from interlock.testing.world import Kind, World


def test_with_raises_on_leaving_when_the_lock_was_lost(world: World, kind: Kind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    with pytest.raises(LockLost) as caught:
        ann.within(lock, lambda grant: world.eye.evict(world.name) and None)
    assert world.name in str(caught.value)
    assert world.nothing_left()
    assert ann.do(lock.owned) is False


def test_the_exception_of_the_body_wins_over_the_loss(world: World, kind: Kind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)

    def body(grant: object) -> None:
        world.eye.evict(world.name)
        raise KeyError("of the body")

    with pytest.raises(KeyError, match="of the body") as caught:
        ann.within(lock, body)
    assert any("lost" in note for note in caught.value.__notes__)


def test_an_eviction_is_noticed_at_the_next_renewal(world: World, kind: Kind, locks: Any, ann: Actor) -> None:
    lost: list[Any] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    world.eye.evict(world.name)
    eventually(lambda: lost, within=RENEWED + 1.5)
    assert [each.id for each in lost] == [grant.id]
    assert grant.lost is True
    with pytest.raises(LockLost, match="fence"):
        grant.check()
    assert ann.do(grant.release) is False
    assert grant.lost is True
    assert len(lost) == 1


def test_a_loss_outside_a_with_is_in_the_log(
    world: World, caplog: pytest.LogCaptureFixture, locks: Any, ann: Actor
) -> None:
    other = world.fresh_name()
    grants = {
        world.name: ann.do(locks.lock(world.name, ttl=RENEWED).acquire),
        other: ann.do(locks.lock(other, ttl=RENEWED, on_lost=lambda grant: None).acquire),
    }

    def losses() -> list[str]:
        return [each for each in caplog.messages if "was lost" in each]

    with caplog.at_level(logging.WARNING, "interlock"):
        for name, grant in grants.items():
            world.eye.evict(name)
            said = eventually(losses)
            assert len(said) == 1
            assert f"{name!r} (fence {grant.fence})" in said[0]
            caplog.clear()


def test_nobody_is_told_of_a_loss_that_was_a_release(world: World, kind: Kind, locks: Any, ann: Actor) -> None:
    lost: list[Any] = []
    lock = kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append)
    for _ in range(30):
        grant = ann.do(lock.acquire)
        assert ann.do(grant.release) is True
        assert grant.lost is False
    # Renewed after 1.6 s, when the leases above would have ended.
    until_renewed(ann.do(locks.lock(world.fresh_name(), ttl=4.8).acquire))
    assert lost == []


def test_a_release_that_failed_is_renewed_no_more_so_the_lock_gets_free(world: World, kind: Kind, ann: Actor) -> None:
    locks, failing = world.connect_with(Failing)
    lost: list[Any] = []
    grant = ann.do(kind.make(locks, world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    failing.broken.add("leave")
    with pytest.raises(StoreError):
        ann.do(grant.release)
    assert grant.held is False
    with pytest.raises(NotHeld):
        grant.check()
    world.until_free()
    eventually(lambda: ann.do(grant.release) is False)
    assert grant.lost is False
    assert lost == []


async def until_lost(grant: Any) -> None:
    """Wait until the grant is lost."""
    while not grant.lost:  # noqa: ASYNC110 - a grant has no event to wait for
        await asyncio.sleep(0.01)
