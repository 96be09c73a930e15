"""Actors, which acquire locks in a test: threads, or tasks on an event loop that runs in the background.

A test is written once and runs with both: `actor.do(lock.acquire)` calls it in the actor's thread, or calls and
awaits it in the actor's task.
"""

import asyncio
import inspect
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any

from interlock.client.base_grant import BaseGrant, BaseGrants
from interlock.testing.waiting import WAIT_LIMIT


class Keeper:
    """Keeps references to the grants among the results, like a program that will release them."""

    def __init__(self) -> None:
        self._grants: list[Any] = []

    def __call__(self, result: Any) -> Any:
        """Return `result`; keep it if it is a grant."""
        if isinstance(result, (BaseGrant, BaseGrants)):
            self._grants.append(result)
        return result


class Actor(ABC):
    """A thread or task that performs one call after another, and keeps the grants that it gets."""

    def __init__(self) -> None:
        self._keep = Keeper()

    def forget(self) -> None:
        """Drop all grants."""
        self._keep = Keeper()

    @abstractmethod
    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        """Let the actor call `function`, and await the result if it is awaitable; return immediately."""

    @abstractmethod
    def start_within(self, lock: Any, body: Callable[[Any], Any]) -> "Future[Any]":
        """Let the actor call `body(grant)` while it holds `lock` by `with` or `async with`; return immediately."""

    @abstractmethod
    def end(self) -> None:
        """End the thread or task; this does not release its grants."""

    def do(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Let the actor call `function`, and wait for the result."""
        return self.start(function, *args, **kwargs).result(WAIT_LIMIT)

    def within(self, lock: Any, body: Callable[[Any], Any]) -> Any:
        """Let the actor call `body(grant)` while it holds `lock`, and wait for the result."""
        return self.start_within(lock, body).result(WAIT_LIMIT)


class ThreadActor(Actor):
    """A thread."""

    def __init__(self) -> None:
        super().__init__()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def _live(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        def job() -> None:
            try:
                future.set_result(self._keep(function(*args, **kwargs)))
            except BaseException as error:
                future.set_exception(error)

        self._jobs.put(job)
        return future

    def start_within(self, lock: Any, body: Callable[[Any], Any]) -> "Future[Any]":

        def job() -> Any:
            with lock as grant:
                return body(grant)

        return self.start(job)

    def end(self) -> None:
        self._jobs.put(None)
        self.thread.join(WAIT_LIMIT)
        if self.thread.is_alive():
            raise AssertionError("an actor is still running a job; the test ended without letting it finish")


class TaskActor(Actor):
    """A task.

    Args:
        loop: a running event loop, in another thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._jobs: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]] | None] = asyncio.Queue()
        self._life = asyncio.run_coroutine_threadsafe(self._live(), loop)

    async def _live(self) -> None:
        while (job := await self._jobs.get()) is not None:
            await job()
            del job

    def start(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()

        async def job() -> None:
            try:
                result = function(*args, **kwargs)
                future.set_result(self._keep(await result if inspect.isawaitable(result) else result))
            except BaseException as error:
                future.set_exception(error)

        self._loop.call_soon_threadsafe(self._jobs.put_nowait, job)
        return future

    def start_within(self, lock: Any, body: Callable[[Any], Any]) -> "Future[Any]":

        async def job() -> Any:
            async with lock as grant:
                result = body(grant)
                return await result if inspect.isawaitable(result) else result

        return self.start(job)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._jobs.put_nowait, None)
        self._life.result(WAIT_LIMIT)  # done already at a second call of `end`


def results(jobs: "Iterable[Future[Any]]") -> list[Any]:
    """Wait for the results of several calls."""
    return [job.result(WAIT_LIMIT) for job in jobs]


class Gate(ABC):
    """A gate that is shut until `open` is called."""

    @abstractmethod
    def open(self) -> None:
        """Wake all waiting calls, and let later calls of `wait` return immediately."""

    @abstractmethod
    def wait(self, *_: object) -> Any:
        """Wait until the gate is open: blocks a thread; a task awaits the result."""


class ThreadGate(Gate):
    """A gate for threads."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def open(self) -> None:
        self._event.set()

    def wait(self, *_: object) -> Any:
        if not self._event.wait(WAIT_LIMIT):
            raise AssertionError("nobody opened the gate")


class TaskGate(Gate):
    """A gate for the tasks of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()

    def open(self) -> None:
        self._loop.call_soon_threadsafe(self._event.set)

    def wait(self, *_: object) -> Any:
        return asyncio.wait_for(self._event.wait(), WAIT_LIMIT)


class Background:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, work: Coroutine[Any, Any, Any], wait_limit: float = WAIT_LIMIT) -> Any:
        """Run a coroutine on the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(wait_limit)

    def close(self) -> None:
        """Cancel the tasks that still run, and end the loop and its thread."""
        self.run(_cancel_others())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(WAIT_LIMIT)
        self.loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), WAIT_LIMIT)
    await asyncio.get_running_loop().shutdown_default_executor()
