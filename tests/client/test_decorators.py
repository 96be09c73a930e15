"""Decorators: a function or coroutine function that runs while the lock is held."""

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from interlock.core.errors import InvalidArgument, LockTimeout
from interlock.testing.actors import Actor
from interlock.testing.contract.fixtures import of_threads
from interlock.testing.store_fixture import ContractWorld, LockKind


def decorated(world: ContractWorld, lock: Any, body: Any) -> Any:
    """Return a function, or a coroutine function in a world of tasks, that calls `body` under the lock."""

    def work(*args: Any, **kwargs: Any) -> Any:
        """Work."""
        return body(*args, **kwargs)

    async def task(*args: Any, **kwargs: Any) -> Any:
        """Work."""
        await asyncio.sleep(0)
        return body(*args, **kwargs)

    return lock(work if world.sync_or_async == "threads" else task)


def test_the_function_runs_while_the_lock_is_held(world: ContractWorld, kind: LockKind, ann: Actor) -> None:
    lock = kind.make(world.connect(), world.name)
    work = decorated(world, lock, lambda *args, **kwargs: (args, kwargs, len(world.holders())))
    for _ in range(2):
        assert ann.do(work, 1, "a", key="value") == ((1, "a"), {"key": "value"}, 1)
        assert world.nothing_left()


def test_it_does_not_run_without_the_lock(world: ContractWorld, locks: Any, ann: Actor, bob: Actor) -> None:
    ann.do(locks.lock(world.name).acquire)
    ran: list[int] = []
    work = decorated(world, locks.lock(world.name, timeout=0.02), lambda: ran.append(1))
    with pytest.raises(LockTimeout):
        bob.do(work)
    assert ran == []


@of_threads
def test_a_generator_function_holds_it_until_it_is_read(world: ContractWorld, kind: LockKind) -> None:
    seen: list[Any] = []

    @kind.make(world.connect(), world.name)  # type: ignore[untyped-decorator]
    def numbers(first: int) -> Any:
        """Count."""
        try:
            seen.append((yield first))
            seen.append((yield first + 1))
        except KeyError:
            seen.append("thrown")
            yield first + 2
        return "over"

    assert inspect.isgeneratorfunction(numbers)
    assert (numbers.__name__, numbers.__doc__) == ("numbers", "Count.")
    reading = numbers(7)
    assert world.nothing_left()
    assert next(reading) == 7
    assert len(world.holders()) == 1
    assert reading.send("sent") == 8
    assert reading.throw(KeyError) == 9
    assert len(world.holders()) == 1
    with pytest.raises(StopIteration) as over:
        next(reading)
    assert over.value.value == "over"
    assert world.nothing_left()
    assert seen == ["sent", "thrown"]


@of_threads
def test_a_generator_that_is_closed_or_fails_gives_it_back(
    world: ContractWorld, kind: LockKind, ann: Actor, bob: Actor
) -> None:
    ended: list[str] = []

    @kind.make(world.connect(), world.name)  # type: ignore[untyped-decorator]
    def endless() -> Iterator[int]:
        try:
            while True:
                yield len(world.holders())
        finally:
            ended.append("closed")

    reading = endless()
    assert ann.do(next, reading) == 1
    bob.do(reading.close)  # as the garbage collector may do in any thread
    assert ended == ["closed"]
    assert world.nothing_left()
    reading = endless()
    assert ann.do(next, reading) == 1
    with pytest.raises(ZeroDivisionError):
        ann.do(reading.throw, ZeroDivisionError)
    assert world.nothing_left()


class Called:
    """An object with `__call__`."""

    def __init__(self, world: ContractWorld) -> None:
        self.world = world

    def __call__(self) -> int:
        """Return how many hold the lock."""
        return len(self.world.holders())


class AsyncCalled(Called):
    """An object with `async __call__`."""

    async def __call__(self) -> int:  # type: ignore[override]
        """Return how many hold the lock."""
        await asyncio.sleep(0)
        return len(self.world.holders())

    async def method(self) -> int:
        """Return how many hold the lock."""
        return await AsyncCalled.__call__(self)


def test_whatever_can_be_called_is_locked(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().lock(world.name)

    def held(*args: object) -> int:
        return len(world.holders())

    async def task(*args: object) -> int:
        await asyncio.sleep(0)
        return held()

    of_tasks = [functools.partial(task, 1), functools.partial(functools.partial(task, 1), 2), AsyncCalled(world)]
    of_tasks += [functools.partial(AsyncCalled(world)), AsyncCalled(world).method]
    of_threads = [functools.partial(held, 1), Called(world), functools.partial(Called(world)), Called(world).__call__]
    of_threads += [functools.lru_cache(held)]
    for function in of_threads if world.sync_or_async == "threads" else of_tasks:
        assert ann.do(lock(function)) == 1
        assert world.nothing_left()
    for function in of_tasks if world.sync_or_async == "threads" else [*of_threads, print, functools.partial(print)]:
        with pytest.raises(InvalidArgument, match="connect"):
            lock(function)
    if world.sync_or_async == "threads":
        assert ann.do(lock(len), "abc") == 3
        assert ann.do(lock(functools.partial(len, "abcd"))) == 4


def test_what_can_not_be_locked_as_a_whole_is_refused(world: ContractWorld) -> None:
    lock = world.connect().lock(world.name)

    async def numbers() -> AsyncIterator[int]:
        yield 1

    def letters() -> Iterator[str]:
        yield "a"

    refused: list[Any] = [numbers, functools.partial(numbers), 5, None, "name", Called]
    refused += [classmethod(print), property(Called)]
    refused += [letters, functools.partial(letters)] if world.sync_or_async == "tasks" else []
    for function in refused:
        with pytest.raises(InvalidArgument) as caught:
            lock(function)
        assert len(str(caught.value)) > 30


def test_a_result_whose_body_has_not_run_yet_is_refused(world: ContractWorld, ann: Actor) -> None:
    lock = world.connect().lock(world.name)
    ran: list[int] = []

    async def task() -> None:
        ran.append(1)

    def letters() -> Iterator[str]:
        ran.append(1)
        yield "a"

    async def numbers() -> AsyncIterator[int]:
        ran.append(1)
        yield 1

    for late in (task, letters, numbers):

        async def wrapped(late: Any = late) -> Any:
            return late()

        function = (lambda late=late: late()) if world.sync_or_async == "threads" else wrapped
        with pytest.raises(InvalidArgument, match="returned a"):
            ann.do(lock(function))
        assert world.nothing_left()
    assert ran == []
