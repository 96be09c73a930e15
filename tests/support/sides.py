"""A connection of either colour and somebody who uses it: one test for threads and tasks."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import interlock
from interlock.testing.actors import Actor, Background, TaskActor, ThreadActor
from interlock.testing.world import TASKS, THREADS

COLOURS = (THREADS, TASKS)


class Side:
    """A connection, and its one user.

    Args:
        locks: the connection.
        actor: a thread, or a task.

    Attributes:
        locks: as given.
    """

    def __init__(self, locks: Any, actor: Actor) -> None:
        self.locks = locks
        self._actor = actor

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


@contextmanager
def side(colour: str, target: Any) -> Iterator[Side]:
    """Connect, and close that at the end of the body.

    Args:
        colour: threads or tasks.
        target: a URL or an engine.
    """
    background = Background() if colour == TASKS else None
    actor = ThreadActor() if background is None else TaskActor(background.loop)
    try:
        locks = actor.do(interlock.connect if background is None else interlock.aconnect, target)
        try:
            yield Side(locks, actor)
        finally:
            actor.do(locks.close)
            actor.end()
    finally:
        if background is not None:
            background.close()
