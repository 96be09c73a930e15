"""Work that is done once for all tasks of an event loop that want it meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Loop = asyncio.AbstractEventLoop


def call_on(loop: Loop, function: Callable[[], object]) -> None:
    """Call a function in an event loop: at once if it is the running one, not at all if it is closed."""
    if loop is asyncio._get_running_loop():
        function()
        return
    with suppress(RuntimeError):  # it is closed
        loop.call_soon_threadsafe(function)


async def join(task: "asyncio.Task[T]") -> tuple[T] | None:
    """Wait for a task; who is cancelled takes nothing from others who wait for it.

    Returns:
        Its result; None if not who waits was cancelled, but the task, as all are when their loop ends.

    Raises:
        Whatever the task raises.
    """
    try:
        return (await asyncio.shield(task),)
    except asyncio.CancelledError:
        here = asyncio.current_task()
        if not task.cancelled() or here is None or here.cancelling():
            raise
        return None


def retrieve(task: "asyncio.Future[Any]") -> None:
    """Take note of how a task ended, when it is done: whoever waited for it may have been cancelled."""
    if not task.cancelled():
        task.exception()


class SharedWork(Generic[T]):
    """Work that each event loop does once for all who want it meanwhile, by a task of its own.

    Args:
        work: what to do.
        name: of the tasks.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> None:
        self._work = work
        self._name = name
        self._tasks: dict[Loop, asyncio.Task[T]] = {}

    def underway(self) -> "list[asyncio.Task[T]]":
        """Return the task of the running loop, if there is one that will come to its end."""
        task = self._tasks.get(asyncio.get_running_loop())
        return [] if task is None or task.done() or task.cancelling() else [task]

    def begin(self) -> "asyncio.Task[T]":
        """Begin it in the running loop, unless it is underway; return its task."""
        for task in self.underway():
            return task
        for ended in [each for each in list(self._tasks) if each.is_closed()]:
            self._tasks.pop(ended, None)  # another loop's thread may clear away at the same time
        loop = asyncio.get_running_loop()
        task = self._tasks[loop] = loop.create_task(self._work(), name=self._name)
        task.add_done_callback(self._ended)
        return task

    async def done(self) -> T:
        """Do it, or wait until the task that does it already has.

        Where that is cancelled, as all tasks are when their loop ends, it is done anew: who waits undoes something.

        Raises:
            Whatever the work raises.
        """
        while True:
            result = await join(self.begin())
            if result is not None:
                return result[0]

    def _ended(self, task: "asyncio.Task[T]") -> None:
        retrieve(task)
        loop = task.get_loop()
        if self._tasks.get(loop) is task:
            self._tasks.pop(loop, None)

    def cancel(self) -> None:
        """Give up what is underway, in whichever loop."""
        for loop, task in list(self._tasks.items()):
            call_on(loop, task.cancel)
