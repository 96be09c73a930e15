"""A connection of either colour and somebody who uses it: one test for threads and tasks."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import interlock
from interlock.testing.actors import Actor, Background, TaskActor, ThreadActor
from interlock.testing.world import TASKS, THREADS

COLOURS = (THREADS, TASKS)


class Side:
    """A connection, and a user of it.

    Args:
        locks: the connection.
        actors: makes users: threads, or tasks of one loop.

    Attributes:
        locks: as given.
    """

    def __init__(self, locks: Any, actors: Callable[[], Actor]) -> None:
        self.locks = locks
        self._actors = actors
        self._actor = actors()

    @contextmanager
    def beside(self) -> Iterator["Side"]:
        """Have one more user of the same connection, in the body."""
        other = Side(self.locks, self._actors)
        try:
            yield other
        finally:
            other.end()

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Let the user call `function`, and return its result, which a task awaits."""
        return self._actor.do(function, *args, **kwargs)

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """As `do`, and do not wait for it."""
        return self._actor.start(function, *args, **kwargs)

    def take(self, name: str, **how: Any) -> Any:
        """Acquire a lock, and return its grant."""
        return self.do(self.locks.lock(name).acquire, **how)

    def waits(self, name: str, **how: Any) -> "Future[Any]":
        """As `take`, and do not wait for it."""
        return self.start(self.locks.lock(name).acquire, **how)

    def claims(self, name: str) -> Any:
        """Return the claims of a name."""
        return self.do(self.locks.claims, name)

    def end(self) -> None:
        """End the user; the connection stays."""
        self._actor.end()


@contextmanager
def side(colour: str, target: Any) -> Iterator[Side]:
    """Connect, and close that at the end of the body.

    Args:
        colour: threads or tasks.
        target: a URL or an engine.
    """
    background = Background() if colour == TASKS else None
    try:
        actors = ThreadActor if background is None else partial(TaskActor, background.loop)
        # A task's connection belongs to no loop before its first step.
        ours = Side(interlock.connect(target) if background is None else interlock.aconnect(target), actors)
        try:
            yield ours
        finally:
            ours.do(ours.locks.close)
            ours.end()
    finally:
        if background is not None:
            background.close()
