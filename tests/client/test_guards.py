"""Guards: decorators that name their lock by the arguments of the call."""

from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, LockTimeout
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import ContractWorld


def guarded(world: ContractWorld, decorate: Any, ran: list[Any]) -> Any:
    """Return a guarded function of `user`, or a coroutine function in a world of tasks, that notes its calls."""

    def work(user: Any, *, hard: bool = False) -> str:
        """Work."""
        ran.append(user)
        return "done"

    async def task(user: Any, *, hard: bool = False) -> str:
        """Work."""
        ran.append(user)
        return "done"

    return decorate(work if world.sync_or_async == "threads" else task)


def test_a_guard_names_its_lock_by_the_arguments(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    ran: list[Any] = []
    work = guarded(world, locks.guard(world.name + ":{user}", on_busy="raise"), ran)
    assert work.__doc__ == "Work."
    ann.do(locks.lock(f"{world.name}:7").acquire)
    assert bob.do(work, 8) == "done"
    assert bob.do(work, user=9, hard=True) == "done"
    for how in ({"user": 7}, {"user": "7", "hard": True}):
        with pytest.raises(LockTimeout) as caught:
            bob.do(work, **how)
        assert caught.value.name == f"{world.name}:7"
    assert ran == [8, 9]


def test_a_guard_skips_or_waits_as_it_is_told(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    ran: list[Any] = []
    skips = guarded(world, locks.guard(world.name, on_busy="skip"), ran)
    waits = guarded(world, locks.guard(world.name), ran)
    hurries = guarded(world, locks.guard(world.name, timeout=0.05), ran)
    grant = ann.do(locks.lock(world.name).acquire)
    assert bob.do(skips, 1) is None
    with pytest.raises(LockTimeout):
        bob.do(hurries, 2)
    waiting = bob.start(waits, 3)
    world.until_waiting(1)
    assert ran == []
    ann.do(grant.release)
    assert waiting.result(20) == "done"
    assert bob.do(skips, 4) == "done"
    assert ran == [3, 4]
    assert world.nothing_left()


def test_a_guard_that_can_not_be_made_is_refused(world: ContractWorld, locks: Any) -> None:
    ran: list[Any] = []
    for name, about in (("{nobody}", "nobody"), ("{user", "brace")):
        with pytest.raises(InvalidArgument, match=about):
            guarded(world, locks.guard(name), ran)
    with pytest.raises(InvalidArgument, match="name"):
        locks.guard("")
    with pytest.raises(InvalidArgument, match="on_busy"):
        locks.guard(world.name, on_busy="never")
    with pytest.raises(InvalidArgument, match="cannot be made"):
        world.actor().do(guarded(world, locks.guard("{user.pk}"), ran), 7)

    async def task() -> None:
        """Never called."""

    def work() -> None:
        """Never called."""

    with pytest.raises(InvalidArgument, match="connect"):
        locks.guard(world.name)(task if world.sync_or_async == "threads" else work)
    assert ran == []
