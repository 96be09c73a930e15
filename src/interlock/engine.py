"""The trampoline for threads: performs the requests of a protocol with blocking calls; also ids and time."""

import os
import time
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

from interlock.effects import Before, Call, FreshId, Now, Op, Sleep, Subscribe, Wait

T = TypeVar("T")


def _new_source_of_ids() -> Callable[[], str]:
    # A random prefix per process and a counter: unique without a system call for each claim.
    prefix = os.urandom(10).hex()
    numbers = count(1)
    return lambda: f"{prefix}{next(numbers):x}"


_fresh_id = _new_source_of_ids()


def fresh_id() -> str:
    """Return a claim id that no process has used or will use."""
    return _fresh_id()


def _after_fork() -> None:
    global _fresh_id
    _fresh_id = _new_source_of_ids()


os.register_at_fork(after_in_child=_after_fork)


def seconds_of(wait: Wait) -> float:
    """Return how long to wait: not past the deadline."""
    if wait.deadline is None:
        return wait.seconds
    return max(0.0, min(wait.seconds, wait.deadline - time.monotonic()))


def run(op: Op[T]) -> T:
    """Perform a protocol in the calling thread.

    Args:
        op: the protocol, not yet started.

    Returns:
        What the protocol returns.

    Raises:
        Whatever the protocol raises; an exception from performing a request is thrown into it first.
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
                elif kind is Before:
                    value = time.monotonic() < request.moment
                elif kind is Now:
                    value = time.monotonic()
                elif kind is Wait:
                    value = request.wakeup.wait(seconds_of(request))
                elif kind is Subscribe:
                    value = wakeup = request.source.thread_wakeup()
                elif kind is FreshId:
                    value = fresh_id()
                elif kind is Sleep:
                    time.sleep(request.seconds)
                    value = None
                else:
                    raise TypeError(f"a protocol yielded {request!r}, which is no request")
                step = op.send
            except BaseException as error:
                step, value = op.throw, error
    finally:
        if wakeup is not None:
            wakeup.close()
