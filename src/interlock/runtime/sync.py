"""Threads: what performs a protocol by blocking calls, what a thread waits on, ids and time."""

import os
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, TypeVar

from interlock.core.effects import Ask, Before, Call, Now, Op, Sleep, Subscribe, Wait
from interlock.core.errors import StoreError

T = TypeVar("T")


def within_a_step() -> StoreError:
    """Return the error of a signal handler that came in the middle of a step of its own thread."""
    return StoreError(
        "a signal handler came in the middle of a step of its own thread, and can't lock or release there: let it "
        "set a flag, and lock or release after it"
    )


def step_under(mutex: Any) -> Any:
    """Return a re-entrant mutex that excludes other threads from a step, to be entered.

    Raises:
        StoreError: it is a signal handler that asks, in the middle of a step of its own thread.
    """
    if mutex._is_owned():
        raise within_a_step()
    return mutex


def fresh_id() -> str:
    """Return a claim id that nobody has used or will use.

    The operating system is asked each time: what a process has in its memory is cloned with it.
    """
    return os.urandom(16).hex()


def seconds_of(wait: Wait) -> float:
    """Return how long to wait: not past the deadline."""
    if wait.deadline is None:
        return wait.seconds
    return max(0.0, min(wait.seconds, wait.deadline - monotonic()))


def run(op: Op[T]) -> T:
    """Perform a protocol in the calling thread.

    Args:
        op: the protocol, not yet started.

    Returns:
        What the protocol returns.

    Raises:
        Whatever the protocol raises; an exception from performing a request is thrown into it first, and an
            interrupt between two requests closes it.
    """
    send = op.send
    step: Callable[[Any], Any] = send
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
                    function, args = request
                    value = function(*args)
                elif kind is Ask:
                    value = request[0].ask(request[1])
                elif kind is Before:
                    value = monotonic() < request[0]
                elif kind is Wait:
                    value = request.wakeup.wait(seconds_of(request))
                elif kind is Now:
                    value = monotonic()
                elif kind is Subscribe:
                    value = wakeup = request.source.thread_wakeup()
                elif kind is Sleep:
                    sleep(request.seconds)
                    value = None
                else:
                    raise TypeError(f"a protocol yielded {request!r}, which is no request")
                step = send
            except BaseException as error:
                step, value = op.throw, error
    finally:
        value = None  # an error would hold this frame, and that what it was caught with
        op.close()
        if wakeup is not None:
            wakeup.close()


class ThreadEvent:
    """A wake-up for one thread: an event that carries a message."""

    __slots__ = ("_lock", "_message")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message: Any = None

    def tell(self, message: object = None) -> None:
        """Wake the waiter, from any thread; a message is kept until it is read."""
        if message is not None:
            self._message = message
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it rang already

    def wait(self, seconds: float) -> Any:
        """Block until told or until `seconds` have passed; return the message or None."""
        self._lock.acquire(timeout=seconds)
        message, self._message = self._message, None
        return message

    def wake(self) -> None:
        """Let the waiter look again, from any thread."""
        self.tell()

    def close(self) -> None:
        """Nothing to give back."""
