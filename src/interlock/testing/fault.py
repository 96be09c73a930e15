"""A fault: what a faulty queue does before and after each step."""

from typing import Any


class Fault:
    """Does nothing; subclasses override methods.

    Attributes:
        closed: True once a queue was closed.
    """

    closed = False

    def before(self, step: str, args: Any) -> Any:
        """Return the arguments of a step, or raise instead of performing it."""
        return args

    def pause_before(self, step: str, args: Any) -> float | None:
        """Return the seconds to wait before a step; None for none."""

    def instead(self, step: str, args: Any) -> Any:
        """Return an answer to give instead of performing a step; None to perform it."""

    def pause_after(self, step: str, args: Any) -> float | None:
        """Return the seconds to wait after a step; None for none."""

    def after(self, step: str, args: Any, answer: Any) -> Any:
        """Return the answer of a step, or raise although it was performed."""
        return answer
