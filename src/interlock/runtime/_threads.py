"""The runtime of threads, with the same names as `_aio`."""

import math
import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from functools import partial
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, TypeAlias, TypeVar, TypeVarTuple
from weakref import ref

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.functions import FunctionKind
from interlock.runtime import clock, log, process
from interlock.runtime.clock import ERROR_PAUSE, LONGEST_SLEEP
from interlock.runtime.process import fresh_id as fresh_id

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Result: TypeAlias = Annotated[T, "at once"]
"""The result of calling a function: here the value itself."""
Mutex = threading.RLock
"""Re-entrant, because a signal handler or finalizer may interrupt a section of its own thread."""
Turn = threading.Lock
"""Protects work that only one thread may do at a time, with waits in between."""
SignalSafeTurn = threading.RLock
"""Like `Turn`; a signal handler or finalizer that interrupts the work of its own thread does the same work."""

CANCELLED = KeyboardInterrupt
IS_ASYNC = False
HANDLERS_WAIT = sys.platform == "win32"
"""True if a handler of a signal does not run before the main thread's wait for a lock or a socket has ended."""
SLICE = 0.1  # seconds of such a wait; then handlers run, and the thread waits again
WRAPPED_KIND: FunctionKind = "function"  # the kind of function that a lock guards
ALARM_IDLE_LIMIT = 10.0  # idle seconds after which the thread of an alarm ends

LOOK_TIME = 250e-6  # seconds to look for a reply before the thread sleeps
MOST_MISSES = 3  # vain looks in a row; then it does not look
SKIPPED = 100  # replies without a look
SEVERAL = len(os.sched_getaffinity(0)) > 1 if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1) > 1


def sleep(seconds: float) -> None:
    """Let `seconds` pass."""
    time.sleep(seconds)


def yield_to_loop() -> None:
    """Do nothing: threads yield automatically."""


def before(now: clock.Clock, moment: float) -> bool:
    """Return True if a clock has not reached `moment`."""
    return now() < moment


def time_by(now: clock.Clock) -> float:
    """Return the time of a clock."""
    return now()


def finish(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run a function to its end; threads are never cancelled."""
    return function(*args)


def finish_within(seconds: float | None, function: Callable[..., T], *args: object) -> T:
    """Run a function to its end; threads are never cancelled, so its reads need time limits."""
    return function(*args)


within = finish_within
offload = run_in_daemon_thread = finish
"""Tasks use other functions here: a blocking function runs in a thread."""


def background() -> Context:
    """Return a new context for work for many callers, without any caller's variables.

    If OpenTelemetry is loaded, its instrumentation ignores this work; otherwise each renewal would be a root span.
    """
    loaded = sys.modules.get("opentelemetry.instrumentation.utils")
    suppressed = getattr(loaded, "suppress_instrumentation", None)  # missing if the module is still being imported
    return Context() if suppressed is None else Context().run(_within, suppressed)


def _within(block: Callable[[], Any]) -> Context:
    with block():
        return copy_context()


def start_background(name: str, function: Callable[[*Ts], object], *args: *Ts) -> "threading.Thread | None":
    """Run a function in a new thread; return None, with a warning, if the interpreter exits.

    Raises:
        StoreError: a subinterpreter cannot start such threads.
    """
    handled = sys.exception()
    try:
        thread = threading.Thread(target=background().run, args=(function, *args), name=name, daemon=True)
        thread.start()
    except RuntimeError as error:
        interrupt = error.__context__
        if interrupt is not None and interrupt is not handled:  # it came inside of `threading`, which replaced it
            raise interrupt from None
        if "interpreter" in str(error) and "shutdown" not in str(error):
            raise StoreError(
                f"Cannot start a thread to renew leases in this interpreter ({error}). Lock in the main "
                f"interpreter, or in a process."
            ) from error
        log.warn("Cannot start a thread for %s: %s", name, error)
        return None
    return thread


def run_detached(name: str, context: Context, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Run a function of the program in a thread, so that it delays nothing else.

    Args:
        name: the thread's name.
        context: for the call, in a copy.
        function, args: the function and its arguments.
    """
    start_background(name, partial(context.copy().run, logged, function, *args))


def logged(function: Callable[..., object], *args: object) -> None:
    """Run a function of the program; log its exceptions."""
    try:
        function(*args)
    except BaseException:  # even SystemExit, because the renewals of others come next
        log.exception("%r failed", function)


def perform(future: "Future[T]", function: Callable[[*Ts], T], *args: *Ts) -> None:
    """Run a function for a future, unless the future was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)


class Caller:
    """A thread as an owner of grants.

    Neither the thread's ident nor its object identify it: both are reused if Python does not know the thread.

    Args:
        life: an object in the locals of the calling thread only, so it ends with the thread.
    """

    __slots__ = ("life", "thread")

    def __init__(self, life: set[None]) -> None:
        self.thread = threading.current_thread()
        self.life = ref(life)

    def get_name(self) -> str:
        """Return the thread's name, like the name of a task."""
        return self.thread.name

    def done(self) -> bool:
        """Return True if the thread has ended, like `Task.done`."""
        return self.life() is None


_callers = threading.local()


def caller() -> Caller:
    """Return the calling thread."""
    try:
        return _callers.me  # type: ignore[no-any-return]
    except AttributeError:  # a signal handler may have set it first
        life = _callers.__dict__.setdefault("life", set())
        me: Caller = _callers.__dict__.setdefault("me", Caller(life))
        return me


def strands() -> tuple[object, ...]:
    """Return the strands of the caller: the running task, if any, and the thread around it.

    Tasks of one thread are different owners: no task re-enters the hold of another.
    """
    if process.running_loop() is None:
        return (None,)
    from asyncio import current_task  # already loaded, because a loop runs

    return current_task(), None


def is_active(owner: Caller) -> bool:
    """Return True if another thread may still be active.

    Not with `sys._current_frames`: uWSGI cancels its threads, whose frames are then invalid.
    """
    return owner is not caller() and not owner.done()


Here: TypeAlias = int | None
here: None = None
"""The owner of a state: None, because all threads of a process share one, dropped at a fork."""

checked_here = process.checked_pid
"""Like `here`, for stores outside of the process: some forks run no hooks."""


def in_slices(wait: Callable[[float], T], seconds: float) -> T:
    """Wait until a function returns a true value, or until `seconds` have passed; return its last value.

    In the main thread handlers of signals run after each slice; in other threads no handler runs.

    Args:
        wait: waits for at most the seconds of its argument.
        seconds: maximum wait.
    """
    deadline = clock.now() + seconds
    longest = SLICE if threading.current_thread() is threading.main_thread() else seconds
    while True:
        found = wait(max(0.0, min(longest, deadline - clock.now())))
        if found or clock.now() >= deadline:
            return found


class Waiter(Generic[T]):
    """Waits for one message, which any thread may send."""

    __slots__ = ("_lock", "_message")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message: T | None = None

    def wake(self, message: T | None = None) -> None:
        """Wake the waiter; a message is kept until it is read."""
        if message is not None:
            self._message = message
        try:
            self._lock.release()
        except RuntimeError:
            pass  # already notified

    def wait(self, seconds: float) -> T | None:
        """Wait until notified or until `seconds` have passed; return the message or None."""
        seconds = max(0.0, min(seconds, LONGEST_SLEEP))
        if HANDLERS_WAIT:
            in_slices(partial(self._lock.acquire, True), seconds)
        else:
            self._lock.acquire(True, seconds)
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Do nothing: a waiter of threads has no resources."""


class Looks:
    """Looks for a reply before the thread sleeps.

    A near server replies sooner than a sleeping thread wakes.  After three vain looks in a row, because the server is
    remote or the processors are busy, it looks for only one reply in a hundred.

    Args:
        wanted: False to never look.

    Attributes:
        wanted: the argument; False where it would only take the processor from the server.
    """

    __slots__ = ("_misses", "wanted")

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted and SEVERAL and hasattr(os, "sched_yield")
        self._misses = 0

    def find(self, look: Callable[[], T | None]) -> T | None:
        """Call a function until it returns a result; None if the thread should sleep."""
        if self.wanted and self._misses < MOST_MISSES:
            until = clock.now() + LOOK_TIME
            while clock.now() < until:
                found = look()
                if found is not None:
                    self._misses = 0
                    return found
                os.sched_yield()  # let other threads use the processor
        self._misses += 1
        if self._misses == MOST_MISSES + SKIPPED:
            self._misses = MOST_MISSES - 1  # one look; after another vain one the next comes as late
        return None


def has_own_poll() -> bool:
    """Return False where `select.poll` is missing, or replaced by gevent or eventlet."""
    return isinstance(getattr(select, "poll", None), BuiltinFunctionType)


class Arrivals:
    """Waits for data on a socket that a library reads.

    Args:
        fileno: the descriptor of the socket.
        read: lets the library read the data.
        soon: True if the data are replies, which may come soon.
    """

    __slots__ = ("_fileno", "_looks", "_poll", "_read")

    def __init__(self, fileno: int, read: Callable[[], object], soon: bool) -> None:
        self._fileno = fileno
        self._read = read
        self._poll = select.poll() if soon and has_own_poll() else None
        if self._poll is not None:
            self._poll.register(fileno, select.POLLIN)
        self._looks = Looks(self._poll is not None)

    def _arrived(self) -> bool | None:
        found = readable(self._fileno, (), 0.0) if self._poll is None else self._poll.poll(0)
        return True if found else None

    def look(self) -> None:
        """Read the data that have arrived."""
        if self._arrived():
            self._read()

    def wait(self, deadline: float) -> bool:
        """Wait until data were read; return False at the deadline."""
        if not self._looks.find(self._arrived) and not readable(self._fileno, (), deadline - clock.now()):
            return False
        self._read()
        return True

    def close(self) -> None:
        """Stop reading."""


def readable(fd: int, ends: Iterable[int], seconds: float) -> set[int]:
    """Wait until a descriptor is readable, or a peer has closed another; return one.

    Args:
        fd: the descriptor to read from.
        ends: the other descriptors.
        seconds: maximum wait.
    """
    seconds = max(0.0, min(seconds, LONGEST_SLEEP))
    if not hasattr(
        select, "poll"
    ):  # missing on Windows and under eventlet, which removes it later: so check each time
        wait = partial(select.select, (fd, *ends), (), ())
        return set(in_slices(lambda part: wait(part)[0], seconds) if HANDLERS_WAIT else wait(seconds)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    for each in ends:
        poll.register(each, 0)
    return {each for each, _ in poll.poll(seconds * 1000)}


class Alarm:
    """Calls a function at a moment, in its own thread, which starts when needed.

    Args:
        function: sets the alarm again for another call.  Its exceptions are logged.
        name: the thread's name.
        now: the clock.
        idle: called before an idle thread ends.
    """

    def __init__(
        self, function: Callable[[], object], name: str, now: clock.Clock, idle: Callable[[], object]
    ) -> None:
        self._function = function
        self._name = name
        self._now = now
        self._idle = idle
        # Not an Event, because an interrupt in its Python code would leave its lock taken.
        self._rung: Waiter[bool] = Waiter()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.moment = math.inf

    def set(self, moment: float) -> None:
        """Call the function at `moment` or earlier."""
        if moment < self.moment:
            with self._starting:
                before, self.moment = self.moment, min(moment, self.moment)
                try:
                    self._rung.wake(True)
                    if (self._thread is None or not self._thread.is_alive()) and not self._stopped:
                        self._thread = start_background(self._name, self._run)
                except BaseException:  # after an interrupt perhaps no thread waits for this moment, so set it again
                    self.moment = before
                    raise

    def stop(self) -> None:
        """Stop the alarm for good."""
        self._stopped = True
        self._rung.wake(True)

    def _run(self) -> None:
        while not self._stopped:
            try:
                left = self.moment - self._now()
                if left <= 0:
                    self.moment = math.inf
                    self._function()
                elif self._rung.wait(min(left, ALARM_IDLE_LIMIT)) is None and self.moment == math.inf:
                    self._idle()
                    with self._starting:
                        if self.moment == math.inf and not self._stopped:
                            self._thread = None
                            return
            except BaseException:  # even SystemExit, because all leases depend on this thread
                log.exception("Unexpected error in %s, which continues.", self._name)
                self.moment = min(self.moment, self._now() + ERROR_PAUSE)
                time.sleep(ERROR_PAUSE)


class WrongWith:
    """Rejects `async with` on sync locks."""

    __slots__ = ()

    async def __aenter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of connect(). Use `with`, or a lock of aconnect().")

    async def __aexit__(self, *_: object) -> None:
        """Never called."""
