"""What tasks do where threads do otherwise; the names of `_threads`."""

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
from interlock.core.functions import Kind
from interlock.runtime import clock, log
from interlock.runtime._threads import background, logged, perform
from interlock.runtime._threads import strands as strands
from interlock.runtime.clock import LONGEST_SLEEP, RETRY
from interlock.runtime.process import checked_pid, in_forked_child, running_loop
from interlock.runtime.process import fresh_id as fresh_id

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Result: TypeAlias = Coroutine[Any, Any, T]
"""What a function of this colour returns when it is called."""
Mutex = RLock
"""For what waiters of other loops and threads share; between two awaits nothing else of this loop comes."""
sleep = asyncio.sleep
Turn = asyncio.Lock
"""For what only one task may do at a time, with awaits in between."""

CANCELLED = asyncio.CancelledError
Caller: TypeAlias = asyncio.Task[object]
TASKS = True
WORKS: Kind = "coroutine function"  # what a lock is held around
SLICE = 0.001  # seconds
CLOSE_ELSEWHERE_LIMIT = 2.0  # seconds


_slices = local()
"""When the loop of this thread is to get its next turn: what completes at once would else keep it for good."""


def turn_is_over() -> bool:
    """Tell whether the other tasks of the loop had no turn for a millisecond."""
    return clock.now() >= getattr(_slices, "next", 0.0)


async def yield_to_loop() -> None:
    """Let the other tasks of the loop run, if they had no turn for a millisecond."""
    if turn_is_over():
        await asyncio.sleep(0)
        _slices.next = clock.now() + SLICE


async def before(now: clock.Clock, moment: float) -> bool:
    """Tell whether a clock still stands before `moment`."""
    return now() < moment


async def time_by(now: clock.Clock) -> float:
    """Return what a clock shows."""
    return now()


async def finish(function: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> T:
    """Call a function to its end, though the caller is cancelled; then the cancellation goes on.

    Raises:
        What the function raises; the cancellation, chained to that, if there was one too.
    """
    return await finish_within(math.inf, function, *args)


async def finish_within(seconds: float, function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Call a function to its end; if the caller is cancelled, for so many seconds more, then it is cancelled too.

    Raises:
        What the function raises; the cancellation, chained to that, if there was one too.
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
                    anyio: Any = sys.modules.get("anyio")  # which else cancels again in each turn of the loop
                    if anyio is not None:
                        shield.enter_context(anyio.CancelScope(shield=True))
                cancelled = error
    if cancelled is not None:
        raise cancelled from (None if task.cancelled() else task.exception())
    return task.result()


async def within(seconds: float | None, function: Callable[[*Ts], Coroutine[object, None, T]], *args: *Ts) -> T:
    """Call a function; TimeoutError, and it is cancelled, if it takes longer (None: it may take any time)."""
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    async with asyncio.timeout(seconds):
        result = await function(*args)
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError  # swallowed by `wait_for`, as it may be before Python 3.12
    return result


@cache
def _workers() -> Any:
    """Return the executor, made at its first use: its module can't be imported after the main thread has ended."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(64, "interlock-blocking")


in_forked_child(_workers.cache_clear)


async def offload(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function that may block in a thread; it runs to its end even if the task is cancelled.

    The function runs in a copy of the caller's context; the thread, which is reused, begins in an empty context.
    """
    future: Future[T] = Future()
    try:
        Context().run(_workers().submit, perform, future, copy_context().run, function, *args)
    except RuntimeError:  # no thread can be started, or the interpreter ends
        if future.cancel():  # else a thread has it: an executor keeps what it refuses
            return function(*args)
    return await finish(asyncio.wrap_future, future)


async def run_in_daemon_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function that may block for as long as it likes, in a thread that does not hold up the exit.

    A task that is cancelled does not wait for it.
    """
    future: Future[T] = Future()
    within = future, copy_context().run, function, *args
    Thread(target=perform, args=within, name="interlock-apart", daemon=True).start()
    return await asyncio.wrap_future(future)


def plain(function: Callable[[*Ts], T]) -> Callable[[*Ts], Coroutine[Any, Any, T]]:
    """Return a function that never blocks as one that is awaited."""

    async def called(*args: *Ts) -> T:
        return function(*args)

    return called


_spawned: set[asyncio.Task[object]] = set()


def start_background(name: str, function: Callable[[*Ts], Coroutine[Any, Any, T]], *args: *Ts) -> asyncio.Task[T]:
    """Call a function in a new task with its own context."""
    context = background()  # entered here, because a program's task factory may not accept a context
    task = context.run(asyncio.get_running_loop().create_task, function(*args), name=name)
    _spawned.add(task)
    task.add_done_callback(_ended, context=context)
    return task


def _ended(task: asyncio.Task[object]) -> None:
    _spawned.discard(task)
    if not task.cancelled() and task.exception() is not None:
        log.warn("Unexpected error in %s: %r", task.get_name(), task.exception())


def run_detached(name: str, context: Context, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call a function of the program on the loop, which it must not block; log its exceptions.

    Args:
        name: for threads.
        context: for the call, in a copy.
        function, args: what to call.
    """
    context.copy().run(logged, function, *args)


def caller() -> Caller:
    """Return the calling task.

    Raises:
        NotHeld: there is none; a lock of `aconnect` is used outside of a task.
    """
    task = asyncio.current_task()
    if task is None:
        raise NotHeld("A lock of aconnect() was used outside of an asyncio task. Await it in a coroutine.")
    return task


def is_active(owner: Caller) -> bool:
    """Tell whether another task may still be at work."""
    return owner is not asyncio.current_task() and not owner.done() and owner.get_loop().is_running()


here = asyncio.get_running_loop
"""Return what a state belongs to: the event loop that runs."""


def checked_here() -> asyncio.AbstractEventLoop:
    """Return the running loop, after a look whether this is a forked child."""
    checked_pid()
    return asyncio.get_running_loop()


async def close_elsewhere(
    closings: Sequence[tuple[asyncio.AbstractEventLoop, Callable[[T], Coroutine[object, None, object]], T]],
) -> None:
    """Call functions on other loops that run, and wait for them for a while."""
    futures = [
        asyncio.wrap_future(asyncio.run_coroutine_threadsafe(function(argument), loop))
        for loop, function, argument in closings
        if loop.is_running()
    ]
    if futures:
        await asyncio.wait(futures, timeout=CLOSE_ELSEWHERE_LIMIT)


class AsyncWaiter(Generic[T]):
    """Waits for one message, which any thread and any loop may tell."""

    __slots__ = ("_future", "_loop", "_message")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future = self._loop.create_future()  # it is done once the waiter was told
        self._message: T | None = None

    def wake(self, message: T | None = None) -> None:
        """Wake the waiter; a message is kept until it is read."""
        if message is not None:
            self._message = message
        if running_loop() is self._loop:
            self._wake()
            return
        with suppress(RuntimeError):  # its loop is closed: it has no waiter any more
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> T | None:
        """Wait until told or until `seconds` have passed; return the message or None."""
        # The loop keeps a cancelled timer, and the context of its caller, until the time of the timer.
        timer = self._loop.call_later(max(0.0, min(seconds, LONGEST_SLEEP)), self._wake, context=Context())
        try:
            if self._message is None:  # else it came together with a cancellation: then this waits for nothing
                await self._future
        finally:
            timer.cancel()
            self._future = self._loop.create_future()
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Nothing to give back."""


class AsyncArrivals:
    """Waits for what arrives on a socket that a library reads itself; it is read as soon as it is there.

    Args:
        fileno: of the socket.
        read: lets the library read what has arrived.
    """

    __slots__ = ("_fileno", "_loop", "_read", "_waiter")

    def __init__(self, fileno: int, read: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._fileno = fileno
        self._read = read
        self._waiter: AsyncWaiter[bool] = AsyncWaiter()
        Context().run(self._loop.add_reader, fileno, self._arrived)

    def _arrived(self) -> None:
        self._read()
        self._waiter.wake(True)

    def look(self) -> None:
        """Nothing: what was there is read."""

    async def wait(self, deadline: float) -> bool:
        """Wait until something was read since the last call; False if the moment came before."""
        return await self._waiter.wait(deadline - clock.now()) is not None

    def close(self) -> None:
        """Read no more: the number of the socket may be another's."""
        fileno, self._fileno = self._fileno, -1
        if fileno >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(fileno)
        self._waiter.wake(True)


async def readable(fd: int, ends: Iterable[int], seconds: float) -> set[int]:
    """Wait until a descriptor can be read, or the other side of one of others is closed; return one that can.

    Args:
        fd: to be read from.
        ends: the others.
        seconds: after which it is nothing.

    Raises:
        StoreError: the loop can't watch descriptors.
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
        found = None  # one of them was closed: the waiter looks, and opens it again
    finally:
        for each in watched:
            loop.remove_reader(each)
    return set() if found is None else {found}


class AsyncAlarm:
    """Calls a function when a moment comes, in a task of its own; no task while nothing is due.

    Args:
        function: sets the alarm again if it is to be called again.  What it raises is logged.
        name: of the task.
        now: the clock.
        idle: for threads.
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
        """Call it at that moment at the latest; from any thread."""
        if moment < self.moment:
            self.moment = moment
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._look, context=self._context)

    def stop(self) -> None:
        """Never call it again."""
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
        # It may be cancelled from outside, by asyncio.run perhaps, which does not mean leases.
        if task.cancelled() or task.exception() is not None:
            self.set(self._now() + RETRY)


class AsyncWrongWith:
    """Refuses the `with` of the other colour."""

    __slots__ = ()

    def __enter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of aconnect(). Use `async with`, or a lock of connect().")

    def __exit__(self, *_: object) -> None:
        """Never come here."""
