"""A violation that the judge has found."""

from typing import NamedTuple


class Violation(NamedTuple):
    """A broken promise.

    Attributes:
        rule: the name of the promise.
        name: the name of the lock; empty if it concerns none.
        at: the time, by the machine's monotonic clock.
        text: a description.
    """

    rule: str
    name: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.name + ': ' if self.name else ''}{self.text} (at {self.at:.6f})"
