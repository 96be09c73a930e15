"""A store written once, as blocking calls, for threads and tasks: a task makes each call in a worker thread."""

from collections.abc import Callable
from functools import partial
from typing import Any

from interlock.core.line import Origin
from interlock.core.queue import ALL, AsyncQueue, Feature, Queue
from interlock.remote.neighbours import neighbours
from interlock.runtime import clock
from interlock.stores._sync.step_queue import StepQueue


class PlainStore:
    """A `core.queue.Store` on blocking calls; a subclass implements `steps`.

    Processes of one host notify each other of hand-overs.
    """

    features: frozenset[Feature] = ALL
    frees_at_death = False
    in_process = False
    now: Callable[[], float] = staticmethod(clock.awake_or_not)  # leases of a server run on while this machine sleeps

    def steps(self) -> Any:
        """Return the step store of one queue: `AsyncSteps` of `stores._async.step_queue`, as blocking calls."""
        raise NotImplementedError

    def queue(self) -> Queue:
        """As `Store.queue`."""
        return StepQueue(self.steps(), neighbours.waiters)

    def aqueue(self) -> AsyncQueue:
        """As `Store.aqueue`."""
        from interlock.stores._async.step_queue import AsyncStepQueue

        return AsyncStepQueue(OffloadedSteps(self.steps()), neighbours.waiters)


class OffloadedSteps:
    """`stores._async.step_queue.AsyncSteps` on blocking calls, each made in a worker thread.

    Args:
        steps: the step store with blocking calls.
    """

    def __init__(self, steps: Any) -> None:
        from interlock.runtime._aio import offload  # only programs with an event loop load asyncio

        self._steps = steps
        self.look_again: float = steps.look_again
        self.tell = steps.tell
        self.abort = steps.close
        self.rest = getattr(steps, "rest", bool)
        self.step, self.keys, self.doctor, self.aclose = (
            partial(offload, call) for call in (steps.step, steps.keys, steps.doctor, steps.close)
        )
        if hasattr(steps, "renew_many"):
            self.renew_many = partial(offload, steps.renew_many)

    @property
    def origin(self) -> Origin:
        """The calling process."""
        origin: Origin = self._steps.origin
        return origin
