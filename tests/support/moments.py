"""Handlers at the moments at which Python calls those of signals: a function begins, or one of C returns."""

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from interlock.testing.waiting import eventually

T = TypeVar("T")


def in_time(call: Callable[[], Any]) -> Any:
    """Return the answer of a call that may hang: it is made in a thread of its own.

    Raises:
        AssertionError: it did not come to its end, or raised.
    """
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    eventually(lambda: not thread.is_alive())
    assert answers, "the call raised"
    return answers[0]


def interrupted(call: Callable[[], T], at: int, handler: Callable[[], object], where: str) -> tuple[T, bool]:
    """Make a call, and in the middle of it, once, another one.

    Args:
        call: what is interrupted.
        at: at how many-th of its moments.
        handler: the other call.
        where: of the modules whose moments count, the start of the path.

    Returns:
        The answer of the call; True if it had so many moments.
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
    """Return where a module and its neighbours lie, for `interrupted`."""
    return os.path.join(os.path.dirname(module.__file__), "")
