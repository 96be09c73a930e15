"""The runtime of tasks, with the same names as `_threads`."""

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from contextvars import Context, copy_context
from functools import cache
from threading import RLock, Thread, local
from typing import Any, Generic, NoReturn, TypeAlias, TypeVar, TypeVarTuple

from interlock.core.errors import InvalidArgument, NotHeld, StoreError
from interlock.core.functions import FunctionKind
from interlock.runtime import clock, log
from interlock.runtime._threads import background, logged, perform
from interlock.runtime._threads import strands as strands
from interlock.runtime.clock import ERROR_PAUSE, LONGEST_SLEEP
from interlock.runtime.process import checked_pid, in_forked_child, running_loop
from interlock.runtime.process import fresh_id as fresh_id

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Result: TypeAlias = Coroutine[object, None, T]
"""The result of calling a function: here an awaitable."""
Mutex = RLock
"""Protects state shared with other threads; between two awaits this loop runs nothing else."""
sleep = asyncio.sleep
Turn = asyncio.Lock
"""Protects work that only one task may do at a time, with awaits in between."""
SignalSafeTurn = asyncio.Lock
"""Like `Turn`."""

CANCELLED = asyncio.CancelledError
Caller: TypeAlias = asyncio.Task[object]
IS_ASYNC = True
WRAPPED_KIND: FunctionKind = "coroutine function"  # the kind of function that a lock guards
LOOP_SLICE = 0.001  # seconds
CLOSE_ELSEWHERE_LIMIT = 2.0  # seconds


_slices = local()
"""When the loop of this thread must run other tasks: instant awaits would otherwise block them."""


def turn_is_over() -> bool:
    """Return True if the loop's other tasks did not run for a millisecond."""
    return clock.now() >= getattr(_slices, "next", 0.0)


async def yield_to_loop() -> None:
    """Let the other tasks of the loop run, if they did not for a millisecond."""
    if turn_is_over():
        await asyncio.sleep(0)
        _slices.next = clock.now() + LOOP_SLICE


async def before(now: clock.Clock, moment: float) -> bool:
    """Return True if a clock has not reached `moment`."""
    return now() < moment


async def time_by(now: clock.Clock) -> float:
    """Return the time of a clock."""
    return now()


async def finish(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Run a function to its end even if the caller is cancelled; then raise the cancellation.

    Raises:
        The error of the function; the cancellation, chained to that error if both occurred.
    """
    return await finish_within(math.inf, function, *args)


async def finish_within(seconds: float, function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Run a function to its end; after a cancellation, for at most `seconds` more.

    Raises:
        The error of the function; the cancellation, chained to that error if both occurred.
    """
    task = asyncio.ensure_future(function(*args))
    cancelled: asyncio.CancelledError | None = None
    with ExitStack() as shield:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError as error:
                if cancelled is None:
                    if seconds < math.inf:
                        task.get_loop().call_later(seconds, task.cancel)
                    anyio: Any = sys.modules.get("anyio")  # otherwise anyio cancels again in each turn of the loop
                    if anyio is not None:
                        shield.enter_context(anyio.CancelScope(shield=True))
                cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()


async def within(seconds: float | None, function: Callable[[*Ts], Coroutine[object, None, T]], *args: *Ts) -> T:
    """Run a function; cancel it, and raise TimeoutError, if it takes too long."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    async with asyncio.timeout(seconds):
        result = await function(*args)
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError  # `wait_for` may swallow it before Python 3.12
    return result


@cache
def _workers() -> Any:
    """Return the executor, made at first use: a late import fails after the main thread."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(64, "interlock-blocking")


in_forked_child(_workers.cache_clear)


async def offload(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a blocking function in a thread, to its end even if the task is cancelled.

    The function runs in a copy of the caller's context; the thread, which is reused, begins in an empty context.
    """
    future: Future[T] = Future()
    try:
        Context().run(_workers().submit, perform, future, copy_context().run, function, *args)
    except RuntimeError:  # no thread can start, or the interpreter exits
        if future.cancel():  # otherwise a thread has it: an executor keeps the calls that it refuses
            return function(*args)
    return await finish(asyncio.wrap_future, future)


async def run_in_daemon_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a function that may block indefinitely, in a thread that does not delay the exit.

    A task that is cancelled does not wait for it.
    """
    future: Future[T] = Future()
    within = future, copy_context().run, function, *args
    Thread(target=perform, args=within, name="interlock-apart", daemon=True).start()
    return await asyncio.wrap_future(future)


def plain(function: Callable[[*Ts], T]) -> Callable[[*Ts], Coroutine[object, None, T]]:
    """Return a function that never blocks as an awaitable function."""

    async def called(*args: *Ts) -> T:
        return function(*args)

    return called


_spawned: set[asyncio.Task[object]] = set()


def start_background(name: str, function: Callable[[*Ts], Coroutine[object, None, T]], *args: *Ts) -> asyncio.Task[T]:
    """Call a function in a new task with its own context."""
    context = background()  # not passed on: some task factories accept no context
    task = context.run(asyncio.get_running_loop().create_task, function(*args), name=name)
    _spawned.add(task)
    task.add_done_callback(_ended, context=context)
    return task


def _ended(task: asyncio.Task[object]) -> None:
    _spawned.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warn("Unexpected error in %s: %r", task.get_name(), task.exception())


def run_detached(name: str, context: Context, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Run a function of the program on the loop, without blocking; log its exceptions.

    Args:
        name: used only for threads.
        context: for the call, in a copy.
        function, args: the function and its arguments.
    """
    context.copy().run(logged, function, *args)


def caller() -> Caller:
    """Return the calling task.

    Raises:
        NotHeld: a lock of `aconnect` is used outside of a task.
    """
    task = asyncio.current_task()
    if task is None:
        raise NotHeld("A lock of aconnect() was used outside of an asyncio task. Await it in a coroutine.")
    return task


def is_active(owner: Caller) -> bool:
    """Return True if another task may still be active."""
    return owner is not asyncio.current_task() and not owner.done() and owner.get_loop().is_running()


Here: TypeAlias = asyncio.AbstractEventLoop
here = asyncio.get_running_loop
"""Return the owner of a state: the running event loop."""


def checked_here() -> asyncio.AbstractEventLoop:
    """Return the running loop, after checking for a fork."""
    checked_pid()
    return asyncio.get_running_loop()


async def close_elsewhere(
    closings: Sequence[tuple[asyncio.AbstractEventLoop, Callable[[T], Coroutine[object, None, object]], T]],
) -> None:
    """Call functions on other running loops, and wait a limited time for them."""
    futures = [
        asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(argument), loop))
        for loop, function, argument in closings
        if loop.is_running()
    ]
    if futures:
        await asyncio.wait(futures, timeout=CLOSE_ELSEWHERE_LIMIT)


class AsyncWaiter(Generic[T]):
    """Waits for one message, which any thread or loop may send."""

    __slots__ = ("_future", "_loop", "_message")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()  # done once the waiter is notified
        self._message: T | None = None

    def wake(self, message: T | None = None) -> None:
        """Wake the waiter; a message is kept until it is read."""
        if message is not None:
            self._message = message
        if running_loop() is self._loop:
            self._wake()
            return
        with suppress(RuntimeError):  # its loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> T | None:
        """Wait until notified or until `seconds` have passed; return the message or None."""
        # Because the loop keeps a cancelled timer, and its caller's context, until the time of the timer.
        timer = self._loop.call_later(max(0.0, min(seconds, LONGEST_SLEEP)), self._wake, context=Context())
        try:
            if self._message is None:  # otherwise the message came with a cancellation: then do not wait
                await self._future
        finally:
            timer.cancel()
            self._future = self._loop.create_future()
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Do nothing: a waiter of tasks has no resources."""


class AsyncArrivals:
    """Waits for data on a socket that a library reads; data are read on arrival.

    Args:
        fileno: the descriptor of the socket.
        read: lets the library read the data.
        soon: of no use here: an event loop never looks, because other tasks wait for their turn.
    """

    __slots__ = ("_fileno", "_loop", "_read", "_waiter")

    def __init__(self, fileno: int, read: Callable[[], object], soon: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._fileno = fileno
        self._read = read
        self._waiter: AsyncWaiter[bool] = AsyncWaiter()
        Context().run(self._loop.add_reader, fileno, self._arrived)

    def _arrived(self) -> None:
        self._read()
        self._waiter.wake(True)

    def look(self) -> None:
        """Do nothing: all data are already read."""

    async def wait(self, deadline: float) -> bool:
        """Wait until data were read since the last call; return False at the deadline."""
        return await self._waiter.wait(deadline - clock.now()) is not None

    def close(self) -> None:
        """Stop reading: the descriptor may belong to another file."""
        fileno, self._fileno = self._fileno, -1
        if fileno >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(fileno)
        self._waiter.wake(True)


async def readable(fd: int, ends: Iterable[int], seconds: float) -> set[int]:
    """Wait until a descriptor is readable, or a peer has closed another; return one.

    Args:
        fd: the descriptor to read from.
        ends: the other descriptors.
        seconds: maximum wait.

    Raises:
        StoreError: the loop cannot watch descriptors.
    """
    loop = asyncio.get_running_loop()
    waiter: AsyncWaiter[int] = AsyncWaiter()
    watched: list[int] = []
    try:
        for each in (fd, *ends):
            loop.add_reader(each, waiter.wake, each)
            watched.append(each)
        found = await waiter.wait(seconds)
    except NotImplementedError as error:
        raise StoreError("This store needs an event loop with add_reader. Use asyncio's default loop.") from error
    except OSError:
        found = None  # one of them was closed: the waiter checks, and opens it again
    finally:
        for each in watched:
            loop.remove_reader(each)
    return set() if found is None else {found}


class AsyncAlarm:
    """Calls a function at a moment, in its own task; without a task while nothing is due.

    Args:
        function: sets the alarm again for another call.  Its exceptions are logged.
        name: the task's name.
        now: the clock.
        idle: used only for threads.
    """

    def __init__(
        self,
        function: Callable[[], Coroutine[object, None, object]],
        name: str,
        now: clock.Clock,
        idle: Callable[[], object],
    ) -> None:
        self._function = function
        self._name = name
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._context = Context()
        self._stopped = False
        self.moment = math.inf

    def set(self, moment: float) -> None:
        """Call the function at `moment` or earlier; from any thread."""
        if moment < self.moment:
            self.moment = moment
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._look, context=self._context)

    def stop(self) -> None:
        """Stop the alarm for good."""
        self._stopped = True
        self.set(-math.inf)

    def _look(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._stopped:
            return
        left = self.moment - self._now()
        if left > 0:
            self._timer = self._loop.call_later(min(left, LONGEST_SLEEP), self._look)
        else:
            self.moment = math.inf
            start_background(self._name, self._function).add_done_callback(self._again)

    def _again(self, task: asyncio.Task[object]) -> None:
        # A cancellation from outside, perhaps by asyncio.run, is not meant for leases.
        if task.cancelled() or task.exception() is not None:
            self.set(self._now() + ERROR_PAUSE)


class AsyncWrongWith:
    """Rejects `with` on async locks."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of aconnect(). Use `async with`, or a lock of connect().")

    def __exit__(self, *_: object) -> None:
        """Never called."""
