"""The line in PL/pgSQL gives the same answers and promotions as `core.line`, in both colours."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from interlock.client.connect import open_store
from interlock.testing.line_property import Twins
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
    store = open_store(url, tasks=colour == TASKS)
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


@pytest.mark.parametrize("seed", range(5))
def test_random_steps_give_the_same_answers_and_promotions_as_memory(url: str, colour: str, seed: int) -> None:
    with queues(url, colour) as both:
        Twins(both, seed).run(100)


def test_leases_longer_than_the_grace_are_committed_first_and_told_afterwards(url: str, colour: str) -> None:
    with queues(f"{url}&grace=0", colour) as both:
        Twins(both, 99).run(100)
