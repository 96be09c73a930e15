"""What is worth a line in the log; `logging` is loaded only then, since programs must start fast."""


def warn(message: str, *args: object) -> None:
    """Log a warning under the name "interlock"."""
    import logging

    logging.getLogger("interlock").warning(message, *args)


def exception(message: str, *args: object) -> None:
    """Log an error under the name "interlock", with the exception that is being handled."""
    import logging

    logging.getLogger("interlock").exception(message, *args)
