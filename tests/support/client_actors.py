"""A client of either colour with a thread or task that uses it: one test for both colours."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

import interlock
from interlock.testing.actors import Actor, Background, TaskActor, ThreadActor
from interlock.testing.store_fixture import TASKS, THREADS

SYNC_AND_ASYNC = (THREADS, TASKS)


class Side:
    """A client, and an actor that uses it.

    Args:
        locks: the client.
        actors: makes actors: threads, or tasks of one loop.

    Attributes:
        locks: as given.
    """

    def __init__(self, locks: Any, actors: Callable[[], Actor]) -> None:
        self.locks = locks
        self._actors = actors
        self._actor = actors()

    @contextmanager
    def beside(self) -> Iterator["Side"]:
        """Yield one more actor with the same client, for the block."""
        other = Side(self.locks, self._actors)
        try:
            yield other
        finally:
            other.end()

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Let the actor call `function`, and return its result, which a task awaits."""
        return self._actor.do(function, *args, **kwargs)

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """As `do`, but return at once."""
        return self._actor.start(function, *args, **kwargs)

    def take(self, name: str, **how: Any) -> Any:
        """Acquire a lock, and return its grant."""
        return self.do(self.locks.lock(name).acquire, **how)

    def waits(self, name: str, **how: Any) -> "Future[Any]":
        """As `take`, but return at once."""
        return self.start(self.locks.lock(name).acquire, **how)

    def claims(self, name: str) -> Any:
        """Return the claims of a name."""
        return self.do(self.locks.claims, name)

    def end(self) -> None:
        """End the actor; the client stays open."""
        self._actor.end()


def hand_over(
    holder: Side | Actor, grant: Any, waiter: Side | Actor, waiting: "Future[Any]", within: float = 10
) -> None:
    """Release a lock; check that the waiter gets it within so many seconds, with a higher fence, and releases it."""
    assert holder.do(grant.release) is True
    later = waiting.result(within)
    assert later.fence > grant.fence
    assert waiter.do(later.release) is True


@contextmanager
def side(sync_or_async: str, target: Any, **how: Any) -> Iterator[Side]:
    """Connect, and close the client at the end of the block.

    Args:
        sync_or_async: threads or tasks.
        target: a URL or an engine.
        how: namespace and ttl.
    """
    background = Background() if sync_or_async == TASKS else None
    try:
        actors = ThreadActor if background is None else partial(TaskActor, background.loop)
        # A client for tasks belongs to no event loop before its first step.
        connect: Any = interlock.connect if background is None else interlock.aconnect
        ours = Side(connect(target, **how), actors)
        try:
            yield ours
        finally:
            ours.do(ours.locks.close)
            ours.end()
    finally:
        if background is not None:
            background.close()
