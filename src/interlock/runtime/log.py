"""The log; `logging` is loaded at the first line, so that programs start fast."""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress

from interlock.runtime.loading import loading

sink: Callable[[str], object] | None = None
"""Receives the lines instead of `logging`; `interlock run` sets its own."""


def warn(message: str, *args: object) -> None:
    """Log a warning under the name "interlock"."""
    _log("warning", message, args)


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the handled exception."""
    _log("exception", message, args)


def _log(level: str, message: str, args: tuple[object, ...]) -> None:
    """Log a line; to stderr if `logging` cannot be loaded because no file can be opened."""
    if sink is not None:
        sink(message % args)
        return
    try:
        # No lock if logging is loaded: a finalizer may run while another thread loads it.
        with nullcontext() if "logging" in sys.modules else loading:
            import logging
    except OSError:
        with suppress(AttributeError, OSError, ValueError):  # no error stream, or a closed one
            sys.stderr.write(f"interlock: {message % args}\n")
        return
    # As text: a handler that keeps its records would keep the frames of an error alive, and grants in them.
    texts = (str(each) if isinstance(each, BaseException) else each for each in args)
    getattr(logging.getLogger("interlock"), level)(message, *texts)
