"""A store written once, as plain calls, for threads and tasks; and the section in which such calls do their work."""

import contextlib
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

from interlock.core._async.acquire import AsyncQueue
from interlock.core.errors import StoreError
from interlock.storekit._sync.step_queue import StepQueue
from interlock.storekit.store import Store

WITHIN_A_STEP = (
    "A signal handler or finalizer interrupted a step of its own thread, so it cannot lock or release. "
    "Set a flag in the handler, and lock or release afterwards."
)


class Section:
    """A critical section: it excludes other threads, and signal handlers of the thread that is in it.

    Attributes:
        mutex: excludes other threads.
        taken: True while a thread is in the section.
    """

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.taken = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter the section for a `with` block.

        A generator that is dropped runs its `finally`, so an interrupt leaves no mutex locked.

        Raises:
            StoreError: the caller is a signal handler that interrupted this section in its own thread.
        """
        with self.mutex:
            if self.taken:  # the mutex is re-entrant: this is the same thread
                raise StoreError(WITHIN_A_STEP)
            self.taken = True
            try:
                yield
            finally:
                self.taken = False


class BlockingStore(Store):
    """A store on plain calls; a subclass implements `steps`."""

    def steps(self) -> Any:
        """Return the step store of one queue: `AsyncSteps` of `stores._async.step_queue`, as plain calls.

        Its attribute `never_blocks` is True if no step ever blocks.
        """
        raise NotImplementedError

    def queue(self) -> StepQueue:
        """As `Store.queue`."""
        return StepQueue(self.steps())

    def aqueue(self) -> AsyncQueue:
        """As `Store.aqueue`."""
        from interlock.storekit._async.step_queue import AsyncStepQueue

        return AsyncStepQueue(TaskSteps(self.steps()))


class TaskSteps:
    """`stores._async.step_queue.AsyncSteps` on plain calls: a call that may block is made in a worker thread.

    Args:
        steps: the step store with plain calls.
    """

    def __init__(self, steps: Any) -> None:
        from interlock.runtime._aio import offload, plain  # only programs with an event loop load asyncio

        self.poll_after: float = steps.poll_after
        self.notifier = getattr(steps, "notifier", steps)
        self.abort = steps.close
        self.close_idle = getattr(steps, "close_idle", bool)
        kind: Any = partial(partial, offload)
        if getattr(steps, "never_blocks", False):
            kind = plain
            self.step_now = steps.step
        self.step, self.keys, self.aclose = map(kind, (steps.step, steps.keys, steps.close))
        self.doctor = partial(offload, steps.doctor)
        if hasattr(steps, "renew_many"):
            self.renew_many = partial(offload, steps.renew_many)
