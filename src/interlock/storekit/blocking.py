"""A store of plain calls for threads and tasks, and its critical section."""

import contextlib
import threading
from collections.abc import Iterator

from interlock.core._async.protocols import AsyncQueue
from interlock.core.errors import StoreError
from interlock.storekit._sync.step_queue import StepQueue, StepStore
from interlock.storekit.store import Store

WITHIN_A_STEP = (
    "A signal handler or finalizer interrupted a step of its own thread, so it cannot lock or release. "
    "Set a flag in the handler, and lock or release afterwards."
)


class Section:
    """A critical section against other threads and against signal handlers of its own thread.

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
            if self.taken:  # the mutex is re-entrant, so this is the same thread
                raise StoreError(WITHIN_A_STEP)
            self.taken = True
            try:
                yield
            finally:
                self.taken = False


class BlockingStore(Store):
    """A store of plain calls; a subclass implements `steps`."""

    def steps(self) -> StepStore:
        """Return the step store of one queue."""
        raise NotImplementedError

    def queue(self) -> StepQueue:
        """Return a queue for threads."""
        return StepQueue(self.steps())

    def aqueue(self) -> AsyncQueue:
        """Return a queue for tasks."""
        from interlock.storekit._async.step_queue import AsyncStepQueue
        from interlock.storekit.task_steps import TaskSteps  # only programs with an event loop load asyncio

        return AsyncStepQueue(TaskSteps(self.steps()))
