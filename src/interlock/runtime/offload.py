"""Calls that block, made by another thread for an asyncio task."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar

T = TypeVar("T")


async def offload(executor: Executor, call: Callable[[], T]) -> T:
    """Make a call in a thread; it comes to its end even if the task is cancelled, which then hears of that.

    Args:
        executor: whose thread.
        call: what may block.
    """
    try:
        future = asyncio.get_running_loop().run_in_executor(executor, call)
    except RuntimeError:
        return call()  # the interpreter ends: pools of threads take nothing any more
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        future.exception()
        raise cancelled
    return future.result()
