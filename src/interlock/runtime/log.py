"""What is worth a line in the log; `logging` is loaded only then, since programs must start fast."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
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
    # As text: a handler that keeps its records would keep the frames of an error alive, and grants in them.
    _logger().warning(message, *(str(each) if isinstance(each, BaseException) else each for each in args))


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the exception that is being handled."""
    if _sink is not None:
        _sink(message % args)
        return
    _logger().exception(message, *args)


def _logger() -> "logging.Logger":
    # The lock is left out where logging is there: a finalizer may run while another thread loads it.
    with nullcontext() if "logging" in sys.modules else _loading:
        import logging
    return logging.getLogger("interlock")
