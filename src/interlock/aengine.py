"""The trampoline for asyncio tasks: performs the requests of a protocol on the running event loop."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any, TypeVar

from interlock.effects import Ask, Before, Call, FreshId, Now, Op, Sleep, Subscribe, Wait
from interlock.engine import fresh_id, seconds_of

T = TypeVar("T")


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
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and (task.cancelled() or task.exception() is not None):
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result(), cancelled
