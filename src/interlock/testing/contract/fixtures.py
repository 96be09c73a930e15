"""The fixtures of the contract's tests; whoever uses them provides one more, `place`."""

import signal
from collections.abc import Iterator

import pytest

from interlock.testing.world import KINDS, TASKS, THREADS, Kind, Place, World

needs_signals = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signal to a thread on this system")


def _world(place: Place, colour: str) -> Iterator[World]:
    world = World(place, colour)
    yield world
    world.close()


@pytest.fixture(params=[THREADS, TASKS])
def world(request: pytest.FixtureRequest, place: Place) -> Iterator[World]:
    """A world of threads, and a world of asyncio tasks."""
    yield from _world(place, request.param)


@pytest.fixture
def world_of_threads(place: Place) -> Iterator[World]:
    """A world of threads only."""
    yield from _world(place, THREADS)


@pytest.fixture
def world_of_tasks(place: Place) -> Iterator[World]:
    """A world of asyncio tasks only."""
    yield from _world(place, TASKS)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of lock."""
    found: Kind = request.param
    return found
