"""What is worth a line in the log; `logging` is loaded only then, since programs must start fast."""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress

from interlock.runtime.loading import loading

sink: Callable[[str], object] | None = None
"""What gets the lines instead of `logging`; `interlock run` has one of its own."""


def warn(message: str, *args: object) -> None:
    """Log a warning under the name "interlock"."""
    _log("warning", message, args)


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the exception that is being handled."""
    _log("exception", message, args)


def _log(level: str, message: str, args: tuple[object, ...]) -> None:
    """Log a line; where `logging` can't be loaded, because no file can be opened, it goes to stderr."""
    if sink is not None:
        sink(message % args)
        return
    try:
        # The lock is left out where logging is there: a finalizer may run while another thread loads it.
        with nullcontext() if "logging" in sys.modules else loading:
            import logging
    except OSError:
        with suppress(AttributeError, OSError, ValueError):  # no error stream, or one that takes nothing
            sys.stderr.write(f"interlock: {message % args}\n")
        return
    # As text: a handler that keeps its records would keep the frames of an error alive, and grants in them.
    texts = (str(each) if isinstance(each, BaseException) else each for each in args)
    getattr(logging.getLogger("interlock"), level)(message, *texts)
