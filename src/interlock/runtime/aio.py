"""Asyncio tasks: what performs a protocol on the running event loop, and what a task waits on."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from time import monotonic
from typing import Any, TypeVar

from interlock.core.effects import Ask, Before, Call, FreshId, Now, Op, Sleep, Subscribe, Wait
from interlock.runtime.sync import fresh_id, seconds_of

T = TypeVar("T")


SLICE = 0.001  # seconds


class _Slices(threading.local):
    """When the loop of this thread is to get its next turn: what completes at once would else keep it for good."""

    next = 0.0


slices = _Slices()


async def give_way() -> None:
    """Let the other tasks of the loop run, if they had no turn for a millisecond."""
    if monotonic() >= slices.next:
        await asyncio.sleep(0)
        slices.next = monotonic() + SLICE


def at_the_end(finish: Callable[[], Awaitable[object]]) -> AsyncGenerator[None, None]:
    """Do something when the running loop ends: `asyncio.run` then closes the asynchronous generators of its loop.

    Source: https://docs.python.org/3/library/asyncio-eventloop.html#asyncio.loop.shutdown_asyncgens

    Args:
        finish: what is awaited then; it must not fail.

    Returns:
        What has to be kept until then.
    """

    async def waiting() -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            await finish()

    generator = waiting()
    try:
        generator.__anext__().send(None)
    except StopIteration:
        pass  # it waits
    return generator


async def arun(op: Op[T]) -> T:
    """Perform a protocol on the running event loop; as `run`, without ever blocking the loop.

    Args:
        op: the protocol, not yet started.

    Returns:
        What the protocol returns.

    Raises:
        Whatever the protocol raises; a cancellation is thrown into it like any exception.
    """
    step: Callable[[Any], Any] = op.send
    value: Any = None
    wakeup = None
    try:
        while True:
            try:
                request = step(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                kind = type(request)
                if kind is Call:
                    value = request.function(*request.args)
                elif kind is Ask:
                    value = await request.server.aask(request.message)
                elif kind is Before:
                    value = monotonic() < request.moment
                elif kind is Now:
                    value = monotonic()
                elif kind is Wait:
                    value = await request.wakeup.wait(seconds_of(request))
                elif kind is Subscribe:
                    value = wakeup = request.source.task_wakeup()
                elif kind is FreshId:
                    value = fresh_id()
                elif kind is Sleep:
                    await asyncio.sleep(request.seconds)
                    value = None
                else:
                    raise TypeError(f"a protocol yielded {request!r}, which is no request")
                step = op.send
            except BaseException as error:
                step, value = op.throw, error
    finally:
        value = None  # as in `run`
        op.close()
        if wakeup is not None:
            wakeup.close()


async def afinish(op: Op[T]) -> tuple[T, asyncio.CancelledError | None]:
    """Perform a protocol to its end, even if the calling task is cancelled meanwhile.

    Args:
        op: the protocol, not yet started.

    Returns:
        What the protocol returns, and the cancellation, which the caller has to raise when it has noted the result.

    Raises:
        Whatever the protocol raises; the cancellation, from it, if there was one too.
    """
    task = asyncio.ensure_future(arun(op))
    cancelled = await _wait_for(task)
    if cancelled is not None and (task.cancelled() or task.exception() is not None):
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result(), cancelled


async def to_its_end(task: "asyncio.Task[T]") -> T:
    """Wait until `task` has come to its end, even if the calling task is cancelled meanwhile.

    Args:
        task: it may have several who wait for it.

    Returns:
        What it returns.

    Raises:
        Whatever it raises; then, if there was one, the cancellation.
    """
    cancelled = await _wait_for(task)
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result


async def _wait_for(task: "asyncio.Task[T]") -> asyncio.CancelledError | None:
    """Wait until `task` is done; return the cancellation of the calling task, if there was one."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class TaskEvent:
    """A wake-up for one asyncio task."""

    __slots__ = ("_event", "_loop", "_message")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._message: Any = None

    def tell(self, message: Any = None) -> None:
        """Wake the waiter, from any thread; a message is kept until it is read."""
        if message is not None:
            self._message = message
        if _running_loop() is self._loop:
            self._event.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            pass  # its loop is closed: nobody waits there any more

    async def wait(self, seconds: float) -> Any:
        """Wait until told or until `seconds` have passed; return the message or None."""
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()
        message, self._message = self._message, None
        return message

    def wake(self) -> None:
        """Let the waiter look again, from any thread."""
        self.tell()

    def close(self) -> None:
        """Nothing to give back."""
