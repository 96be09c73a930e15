"""The fixtures of the contract's tests; a test module that uses them must provide one more, `place`."""

import functools
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, cast

import pytest

from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
from interlock.core.errors import Unsupported
from interlock.core.queue import ALL, Feature
from interlock.testing.actors import Actor
from interlock.testing.store_fixture import KINDS, TASKS, THREADS, ContractWorld, LockKind, StoreFixture

Test = TypeVar("Test", bound=Callable[..., None])
of_threads = pytest.mark.parametrize("world", [THREADS], indirect=True)
of_tasks = pytest.mark.parametrize("world", [TASKS], indirect=True)
needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signal to a thread on this system")


def needs(*features: Feature) -> Callable[[Test], Test]:
    """Mark a test of a feature; a store that lacks it must refuse, and name one that has it."""

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def played(**fixtures: Any) -> None:
            world = next(each for each in fixtures.values() if isinstance(each, ContractWorld))
            lacks = not world.eye.store.features.issuperset(features)
            with pytest.raises(Unsupported, match="postgresql://") if lacks else nullcontext():
                test(**fixtures)

        return cast(Test, played)

    return decorate


def skipped_without(test: Test) -> Test:
    """Let a test be skipped on a store that lacks a feature which the test uses, such as a kind of lock."""

    @functools.wraps(test)
    def played(**fixtures: Any) -> None:
        try:
            test(**fixtures)
        except Unsupported as error:
            stores = [
                each.eye.store if isinstance(each, ContractWorld) else each.store for each in _with_store(fixtures)
            ]
            if any(error.feature in ALL - store.features for store in stores):
                pytest.skip(str(error))
            raise

    return cast(Test, played)


def _with_store(fixtures: dict[str, Any]) -> list[Any]:
    return [each for each in fixtures.values() if isinstance(each, (ContractWorld, Locks, AsyncLocks))]


@contextmanager
def struck_while_it_waits(world: ContractWorld, number: int, handler: Any) -> Iterator[None]:
    """Send a signal to the main thread, which runs the block, as soon as a claim waits."""
    assert threading.current_thread() is threading.main_thread(), "signals reach the main thread only"
    before = signal.signal(number, handler)

    def send_signal() -> None:
        world.until_waiting(1)
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    sender = world.actor().start(send_signal)
    try:
        yield
    finally:
        sender.result(20)
        signal.signal(number, before)


def _world(place: StoreFixture, sync_or_async: str) -> Iterator[ContractWorld]:
    world = ContractWorld(place, sync_or_async)
    yield world
    world.close()


@pytest.fixture(params=[THREADS, TASKS])
def world(request: pytest.FixtureRequest, place: StoreFixture) -> Iterator[ContractWorld]:
    """A world of threads, and a world of asyncio tasks."""
    yield from _world(place, request.param)


@pytest.fixture
def world_of_threads(place: StoreFixture) -> Iterator[ContractWorld]:
    """A world of threads only."""
    yield from _world(place, THREADS)


@pytest.fixture
def world_of_tasks(place: StoreFixture) -> Iterator[ContractWorld]:
    """A world of asyncio tasks only."""
    yield from _world(place, TASKS)


@pytest.fixture
def locks(world: ContractWorld) -> Any:
    """A client of the world."""
    return world.connect()


def _somebody(world: ContractWorld) -> Actor:
    """An actor of the world; `ann`, `bob` and `eve` are three of them."""
    return world.actor()


ann, bob, eve = (pytest.fixture(_somebody, name=name) for name in ("ann", "bob", "eve"))


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> LockKind:
    """Each kind of lock."""
    found: LockKind = request.param
    return found
