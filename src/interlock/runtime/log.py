"""What is worth a line in the log; `logging` is loaded only then, since programs must start fast."""

import sys
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from interlock import _loading

if TYPE_CHECKING:
    import logging

_sink: Callable[[str], object] | None = None


def divert(sink: Callable[[str], object] | None) -> None:
    """Give the lines to `sink` instead of to `logging`; None gives them back."""
    global _sink
    _sink = sink


def warn(message: str, *args: object) -> None:
    """Log a warning under the name "interlock"."""
    if _sink is not None:
        _sink(message % args)
        return
    logger = _logger(message, *args)
    if logger is not None:
        # As text: a handler that keeps its records would keep the frames of an error alive, and grants in them.
        logger.warning(message, *(str(each) if isinstance(each, BaseException) else each for each in args))


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the exception that is being handled."""
    if _sink is not None:
        _sink(message % args)
        return
    logger = _logger(message, *args)
    if logger is not None:
        logger.exception(message, *args)


def _logger(message: str, *args: object) -> "logging.Logger | None":
    """Return the logger; where it can't be loaded, because no file can be opened, the message goes to stderr."""
    try:
        # The lock is left out where logging is there: a finalizer may run while another thread loads it.
        with nullcontext() if "logging" in sys.modules else _loading:
            import logging
    except OSError:
        with suppress(AttributeError, OSError, ValueError):  # no error stream, or one that takes nothing
            sys.stderr.write(f"interlock: {message % args}\n")
        return None
    return logging.getLogger("interlock")
