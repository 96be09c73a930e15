"""Renewals: one that fails, hangs or is slow does not delay the others; released locks are not renewed."""

import asyncio
import threading
import time
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_tasks, of_threads
from interlock.testing.contract.leases import MACHINE_DELAY
from interlock.testing.faults import Failing, Partial, Stuck
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import LATER, RENEWED, Stalls, eventually, until_renewed


def test_the_watchdog_survives_what_nobody_expected(world: ContractWorld, ann: Actor) -> None:
    locks, failing = world.connect_with(lambda store: Failing(store, error=RuntimeError))
    grant = ann.do(locks.lock(world.name, ttl=2 * RENEWED).acquire)
    failing.broken.add("renew")
    eventually(lambda: failing.refused["renew"] >= 2)
    failing.broken.clear()
    until_renewed(grant)


def test_a_failed_renewal_does_not_delay_others_of_its_request(world: ContractWorld, ann: Actor) -> None:
    locks, partial = world.connect_with(Partial)
    lost: list[object] = []
    bad = ann.do(locks.lock(world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    good = [ann.do(locks.lock(world.fresh_name(), ttl=RENEWED).acquire) for _ in range(3)]
    partial.names.add(world.name)
    eventually(lambda: lost)
    for grant in good:
        until_renewed(grant)
    assert lost == [bad]
    assert partial.together >= 1
    with pytest.raises(StoreError, match="not this one"):
        ann.do(ann.do(locks.lock(world.name).acquire).renew)
    assert [ann.do(grant.release) for grant in good] == [True] * 3


def test_a_renewal_that_hangs_holds_back_none_who_is_due_later(world: ContractWorld, ann: Actor) -> None:
    locks, stuck = world.connect_with(lambda store: Stuck(store, 3.0))
    lost: list[object] = []
    stuck.names.add(world.name)
    good = [ann.do(locks.lock(world.fresh_name(), ttl=ttl).acquire) for ttl in (6.0, 6.3, 6.6)]
    ends = [time.monotonic() + grant.expires_in for grant in good]
    began = time.monotonic()
    bad = ann.do(locks.lock(world.name, ttl=RENEWED, on_lost=lost.append).acquire)
    for grant, end in zip(good, ends, strict=True):
        eventually(lambda grant=grant, end=end: time.monotonic() + grant.expires_in > end + LATER)  # type: ignore[misc]
    assert time.monotonic() < began + RENEWED / 3 + stuck.seconds, "they came after it hung no more"
    eventually(lambda: lost == [bad])
    assert stuck.hangs >= 1


def test_many_losses_are_reported_on_time_while_a_renewal_hangs(world: ContractWorld, ann: Actor) -> None:
    locks, stuck = world.connect_with(lambda store: Stuck(store, 3.0))
    heard: dict[str, float] = {}
    kept: list[tuple[Any, float]] = []

    def note(grant: Any) -> None:
        heard[grant.name] = time.monotonic()

    with Stalls() as machine:
        for number in range(5):
            name = world.fresh_name()
            stuck.names.add(name)
            grant = ann.do(locks.lock(name, ttl=RENEWED + number / 10, on_lost=note).acquire)
            kept.append((grant, time.monotonic() + grant.expires_in))
        eventually(lambda: len(heard) == 5, within=RENEWED + 0.4 + MACHINE_DELAY)
    assert all(heard[grant.name] >= deadline for grant, deadline in kept)
    assert all(machine.between(deadline, heard[grant.name]) < 0.2 for grant, deadline in kept)


@of_threads
def test_an_on_lost_that_takes_long_holds_back_no_renewal(world: ContractWorld, locks: Any, ann: Actor) -> None:
    calls: list[str] = []
    over = threading.Event()

    def slow(grant: Any) -> None:
        calls.append(threading.current_thread().name)
        over.wait(20)

    evicted = [world.fresh_name() for _ in range(2)]
    kept = [ann.do(locks.lock(name, ttl=RENEWED, on_lost=slow).acquire) for name in evicted]
    other = ann.do(locks.lock(world.name, ttl=RENEWED).acquire)
    for name in evicted:
        world.eye.evict(name)
    eventually(lambda: len(calls) == 2)
    until_renewed(other, 2)
    assert calls == ["interlock-on-lost"] * 2
    assert all(grant.lost for grant in kept)
    over.set()


@pytest.mark.parametrize("kind_of_end", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_an_on_lost_that_raises_anything_ends_no_renewal(
    world: ContractWorld, kind_of_end: type[BaseException], locks: Any, ann: Actor
) -> None:
    calls: list[object] = []

    def ends(grant: object) -> None:
        calls.append(grant)
        raise kind_of_end

    kept = ann.do(locks.lock(world.name, ttl=RENEWED, on_lost=ends).acquire)
    others = [ann.do(locks.lock(world.fresh_name(), ttl=RENEWED).acquire) for _ in range(2)]
    world.eye.evict(world.name)
    eventually(lambda: calls)
    for other in others:
        until_renewed(other, 2)
    assert calls == [kept]


@of_tasks
def test_renewals_that_are_ended_from_outside_are_tried_again(world: ContractWorld, locks: Any) -> None:
    grant = world.actor().do(locks.lock(world.name, ttl=RENEWED).acquire)

    async def cancel_all() -> int:
        for _ in range(2000):
            tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("interlock-")]
            if tasks:
                return sum(task.cancel() for task in tasks)
            await asyncio.sleep(0.001)
        return 0

    for _ in range(3):
        assert world.run(cancel_all())
        until_renewed(grant)
