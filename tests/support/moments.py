"""Calls at the moments at which Python runs signal handlers: the entry of a function, or the return from C code."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from interlock.testing.waiting import eventually

T = TypeVar("T")


def in_time(call: Callable[[], Any]) -> Any:
    """Return the result of a call that may hang, made in a separate thread.

    Raises:
        AssertionError: the call did not end in time, or raised.
    """
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    eventually(lambda: not thread.is_alive())
    assert answers, "the call raised"
    return answers[0]


def interrupted(call: Callable[[], T], at: int, handler: Callable[[], object], where: str) -> tuple[T, bool]:
    """Make a call, and interrupt it once by another call.

    Args:
        call: the call to interrupt.
        at: the number of the moment at which to interrupt it.
        handler: the interrupting call.
        where: the path prefix of the modules whose moments count.

    Returns:
        The result of the call, and True if it had so many moments.
    """
    left = at

    def moment(frame: Any, event: str, _: Any) -> None:
        nonlocal left
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(where):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                handler()

    sys.setprofile(moment)
    try:
        return call(), left < 0
    finally:
        sys.setprofile(None)


def folder_of(module: Any) -> str:
    """Return the folder of a module, for `interrupted`."""
    return os.path.join(os.path.dirname(module.__file__), "")
