"""What is worth a line in the log; `logging` is loaded only then, since programs must start fast."""

from collections.abc import Callable

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
    import logging

    logging.getLogger("interlock").warning(message, *args)


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the exception that is being handled."""
    if _sink is not None:
        _sink(message % args)
        return
    import logging

    logging.getLogger("interlock").exception(message, *args)
