"""Decorators: a function or coroutine function that runs while the lock is held."""

import asyncio
import inspect
from typing import Any

import pytest

from interlock.errors import InvalidArgument, LockLost, LockTimeout
from interlock.testing.world import Kind, World


def decorated(world: World, lock: Any, body: Any) -> Any:
    """Return a function, or a coroutine function in a world of tasks, that calls `body` under the lock."""

    def work(*args: Any, **kwargs: Any) -> Any:
        """Work."""
        return body(*args, **kwargs)

    async def task(*args: Any, **kwargs: Any) -> Any:
        """Work."""
        await asyncio.sleep(0)
        return body(*args, **kwargs)

    return lock(work if world.colour == "threads" else task)


def test_the_function_runs_while_the_lock_is_held(world: World, kind: Kind) -> None:
    ann = world.actor()
    lock = kind.make(world.connect(), world.name)
    work = decorated(world, lock, lambda *args, **kwargs: (args, kwargs, len(world.holders())))
    for _ in range(2):
        assert ann.do(work, 1, "a", key="value") == ((1, "a"), {"key": "value"}, 1)
        assert world.nothing_left()


def test_it_keeps_its_name_and_colour(world: World) -> None:
    work = decorated(world, world.connect().lock(world.name), print)
    assert work.__name__ in ("work", "task")
    assert work.__doc__ == "Work."
    assert inspect.iscoroutinefunction(work) is (world.colour == "tasks")


def test_what_it_raises_comes_through(world: World) -> None:
    ann = world.actor()
    work = decorated(world, world.connect().lock(world.name), lambda: {"found": 1}["missing"])
    with pytest.raises(KeyError, match="missing"):
        ann.do(work)
    assert world.nothing_left()


def test_it_does_not_run_without_the_lock(world: World) -> None:
    ann, bob = world.actors(2)
    locks = world.connect()
    ann.do(locks.lock(world.name).acquire)
    ran: list[int] = []
    work = decorated(world, locks.lock(world.name, timeout=0.02), lambda: ran.append(1))
    with pytest.raises(LockTimeout):
        bob.do(work)
    assert ran == []


def test_many_may_call_it_at_once(world: World) -> None:
    box = [0]
    lock = world.connect().lock(world.name)

    def work() -> None:
        world.careless_increment(box)

    async def task() -> None:
        await world.careless_increment(box)

    decorated = lock(work if world.colour == "threads" else task)
    jobs = [actor.start(decorated) for actor in world.actors(4) for _ in range(20)]
    for job in jobs:
        job.result(60)
    assert box[0] == 80


def test_it_may_call_itself_with_a_re_entrant_lock(world_of_threads: World) -> None:
    world = world_of_threads

    @world.connect().rlock(world.name)  # type: ignore[untyped-decorator]
    def countdown(number: int) -> int:
        held = len(world.holders())
        return held if number == 0 else held + int(countdown(number - 1))

    assert world.actor().do(countdown, 3) == 4
    assert world.nothing_left()


def test_a_function_of_the_wrong_colour_is_refused(world: World) -> None:
    lock = world.connect().lock(world.name)

    async def task() -> None:
        """Never called."""

    def work() -> None:
        """Never called."""

    wrong = task if world.colour == "threads" else work
    with pytest.raises(InvalidArgument, match="connect"):
        lock(wrong)


def test_a_loss_is_raised_at_the_end(world: World) -> None:
    ann = world.actor()
    work = decorated(world, world.connect().lock(world.name), lambda: world.eye.evict(world.name))
    with pytest.raises(LockLost):
        ann.do(work)
