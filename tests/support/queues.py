"""Two queues of a store, as of two processes, which tests of either colour ask in plain calls."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from interlock.client.connect import open_store
from interlock.testing.world import TASKS, THREADS


class Blocking:
    """A queue of tasks, as threads use one."""

    def __init__(self, queue: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._queue = queue
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._queue, name)
        return lambda *args: asyncio.run_coroutine_threadsafe(method(*args), self._loop).result(30)


@contextmanager
def queues(url: str, colour: str) -> Iterator[list[Any]]:
    """Two queues, as of two processes."""
    store: Any = open_store(url, tasks=colour == TASKS)
    if colour == THREADS:
        both = [store.queue(), store.queue()]
        yield both
        for each in both:
            each.close()
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        async def made() -> list[Any]:
            return [store.aqueue(), store.aqueue()]

        mine = [Blocking(each, loop) for each in asyncio.run_coroutine_threadsafe(made(), loop).result(30)]
        yield mine
        for one in mine:
            one.aclose()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
