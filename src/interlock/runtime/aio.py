"""Asyncio tasks: what performs a protocol on the running event loop, and what a task waits on."""

import asyncio
import threading
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from interlock.core.effects import Ask, Before, Call, Now, Op, Sleep, Subscribe, Wait
from interlock.runtime.sync import seconds_of

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

    def tell(self, message: object = None) -> None:
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
