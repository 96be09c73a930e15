"""What threads do where tasks do otherwise; the names of `_aio`."""

import math
import select
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Generic, NoReturn, TypeAlias, TypeVar, TypeVarTuple
from weakref import ref

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.functions import Kind
from interlock.runtime import clock, log, process
from interlock.runtime.clock import LONGEST_SLEEP, RETRY
from interlock.runtime.process import fresh_id as fresh_id

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Result: TypeAlias = Annotated[T, "at once"]
"""What a function of this colour returns when it is called."""
Mutex = threading.RLock
"""Re-entrant: a signal handler or a finalizer may come inside, so each section may be nested by its own thread."""
Turn = threading.Lock
"""For what only one thread may do at a time, with waits in between."""

CANCELLED = KeyboardInterrupt
TASKS = False
WORKS: Kind = "function"  # what a lock is held around
IDLE = 10.0  # seconds without anything to do, after which the thread of an alarm ends


def sleep(seconds: float) -> None:
    """Let `seconds` pass."""
    time.sleep(seconds)


def yield_to_loop() -> None:
    """Nothing: threads take turns by themselves."""


def before(now: clock.Clock, moment: float) -> bool:
    """Tell whether a clock still stands before `moment`."""
    return now() < moment


def time_by(now: clock.Clock) -> float:
    """Return what a clock shows."""
    return now()


def finish(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function to its end, though the caller is cancelled; threads are never cancelled."""
    return function(*args)


def finish_within(seconds: float | None, function: Callable[..., T], *args: object) -> T:
    """Call a function to its end; threads are never cancelled, so its own reads must end in time."""
    return function(*args)


within = finish_within
offload = run_in_daemon_thread = finish
"""For tasks they are others: there, a function that may block gets a thread."""


def background() -> Context:
    """Return a new context for work that serves many callers, without the variables of any caller.

    If OpenTelemetry is loaded, its instrumentation ignores this work; otherwise each renewal would be a root span.
    """
    loaded: Any = sys.modules.get("opentelemetry.instrumentation.utils")
    suppressed = getattr(loaded, "suppress_instrumentation", None)  # missing if the module is still being imported
    return Context() if suppressed is None else Context().run(_within, suppressed)


def _within(block: Callable[[], Any]) -> Context:
    with block():
        return copy_context()


def start_background(name: str, function: Callable[[*Ts], object], *args: *Ts) -> "threading.Thread | None":
    """Call a function in a new thread with its own context; None, with a warning, if the interpreter exits.

    Raises:
        StoreError: this is a subinterpreter, which may have no such threads.
    """
    try:
        thread = threading.Thread(target=background().run, args=(function, *args), name=name, daemon=True)
        thread.start()
    except RuntimeError as error:
        if "interpreter" in str(error) and "shutdown" not in str(error):
            raise StoreError(
                f"Cannot start a thread to renew leases in this interpreter ({error}). Lock in the main "
                f"interpreter, or in a process."
            ) from error
        log.warn("Cannot start a thread for %s: %s", name, error)
        return None
    return thread


def run_detached(name: str, context: Context, function: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call a function of the program in a thread, so that it delays nothing else.

    Args:
        name: of the thread.
        context: for the call, in a copy.
        function, args: what to call.
    """
    start_background(name, partial(context.copy().run, logged, function, *args))


def logged(function: Callable[..., object], *args: object) -> None:
    """Call a function of the program; what it raises is logged."""
    try:
        function(*args)
    except BaseException:  # even SystemExit: the renewals of others come after it
        log.exception("%r failed", function)


def perform(future: "Future[T]", function: Callable[[*Ts], T], *args: *Ts) -> None:
    """Call a function for the future of its result, unless that was cancelled."""
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function(*args))
    except BaseException as error:
        future.set_exception(error)


class Caller:
    """A thread, as the owner of what it holds.

    Not the thread's ident, nor its object: both are used again where Python does not know the thread.

    Args:
        life: of the calling thread: only its locals have it, so it ends with the thread.
    """

    __slots__ = ("life", "thread")

    def __init__(self, life: set[None]) -> None:
        self.thread = threading.current_thread()
        self.life = ref(life)

    def get_name(self) -> str:
        """Return what people call it; as the name of a task."""
        return self.thread.name

    def done(self) -> bool:
        """Return True once the thread has ended, like `Task.done`."""
        return self.life() is None


_callers = threading.local()


def caller() -> Caller:
    """Return the calling thread."""
    try:
        return _callers.me  # type: ignore[no-any-return]
    except AttributeError:  # a signal handler may have been quicker
        life = _callers.__dict__.setdefault("life", set())
        me: Caller = _callers.__dict__.setdefault("me", Caller(life))
        return me


def strands() -> tuple[object, ...]:
    """Return what the caller works at: the task of a loop that runs in its thread, and all that is around the loop.

    Tasks of one thread are not one owner: a hold of one of them is re-entered by no other.
    """
    if process.running_loop() is None:
        return (None,)
    from asyncio import current_task  # loaded, since a loop runs

    return current_task(), None


def is_active(owner: Caller) -> bool:
    """Tell whether another thread may still be at work.

    Not by `sys._current_frames`: uWSGI cancels its threads, and what that reads of them is gone then.
    """
    return owner is not caller() and not owner.done()


here: None = None
"""What a state belongs to: None, since all threads of a process share one; it is dropped when the process forks."""

checked_here = process.checked_pid
"""As `here`, for stores whose lines are elsewhere: some forks run no hooks."""


class Waiter(Generic[T]):
    """Waits for one message, which any thread may tell."""

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
            pass  # it was told already

    def wait(self, seconds: float) -> T | None:
        """Wait until told or until `seconds` have passed; return the message or None."""
        self._lock.acquire(timeout=max(0.0, min(seconds, LONGEST_SLEEP)))
        message, self._message = self._message, None
        return message

    def close(self) -> None:
        """Nothing to give back."""


class Arrivals:
    """Waits for what arrives on a socket that a library reads itself.

    Args:
        fileno: of the socket.
        read: lets the library read what has arrived.
    """

    __slots__ = ("_fileno", "_read")

    def __init__(self, fileno: int, read: Callable[[], object]) -> None:
        self._fileno = fileno
        self._read = read

    def look(self) -> None:
        """Read what is there."""
        if readable(self._fileno, (), 0.0):
            self._read()

    def wait(self, deadline: float) -> bool:
        """Wait until something was read; False if the moment came before."""
        if not readable(self._fileno, (), deadline - clock.now()):
            return False
        self._read()
        return True

    def close(self) -> None:
        """Read no more."""


def readable(fd: int, ends: Iterable[int], seconds: float) -> set[int]:
    """Wait until a descriptor can be read, or the other side of one of others is closed; return which.

    Args:
        fd: to be read from.
        ends: the others.
        seconds: after which it is nothing.
    """
    seconds = max(0.0, min(seconds, LONGEST_SLEEP))
    if not hasattr(select, "poll"):  # on Windows, and under eventlet, which takes it away: so it is asked each time
        return set(select.select((fd, *ends), (), (), seconds)[0])
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    for each in ends:
        poll.register(each, 0)
    return {each for each, _ in poll.poll(seconds * 1000)}


class Alarm:
    """Calls a function when a moment comes, in a thread of its own that starts when it is needed.

    Args:
        function: sets the alarm again if it is to be called again.  What it raises is logged.
        name: of the thread.
        now: the clock.
        idle: called before the thread ends since there was nothing to do.
    """

    def __init__(
        self, function: Callable[[], object], name: str, now: clock.Clock, idle: Callable[[], object]
    ) -> None:
        self._function = function
        self._name = name
        self._now = now
        self._idle = idle
        # No Event: an interrupt in its Python code would leave its lock taken.
        self._rung: Waiter[bool] = Waiter()
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self.moment = math.inf

    def set(self, moment: float) -> None:
        """Call it at that moment at the latest."""
        if moment < self.moment:
            with self._starting:
                before, self.moment = self.moment, min(moment, self.moment)
                try:
                    self._rung.wake(True)
                    if (self._thread is None or not self._thread.is_alive()) and not self._stopped:
                        self._thread = start_background(self._name, self._run)
                except BaseException:  # an interrupt: perhaps no thread waits for this moment, so set it again
                    self.moment = before
                    raise

    def stop(self) -> None:
        """Never call it again."""
        self._stopped = True
        self._rung.wake(True)

    def _run(self) -> None:
        while not self._stopped:
            try:
                left = self.moment - self._now()
                if left <= 0:
                    self.moment = math.inf
                    self._function()
                elif self._rung.wait(min(left, IDLE)) is None and self.moment == math.inf:
                    self._idle()
                    with self._starting:
                        if self.moment == math.inf and not self._stopped:
                            self._thread = None
                            return
            except BaseException:  # even SystemExit: all leases hang on this thread
                log.exception("Unexpected error in %s, which continues.", self._name)
                self.moment = min(self.moment, self._now() + RETRY)
                time.sleep(RETRY)


class WrongWith:
    """Refuses the `with` of the other colour."""

    __slots__ = ()

    async def __aenter__(self) -> NoReturn:
        raise InvalidArgument(f"{self!r} is a lock of connect(). Use `with`, or a lock of aconnect().")

    async def __aexit__(self, *_: object) -> None:
        """Never come here."""
