"""What the judge says of one thing that can't be."""

from typing import NamedTuple


class Violation(NamedTuple):
    """Something that can't be.

    Attributes:
        rule: which promise was broken.
        name: of the lock; empty if it is none's.
        at: when, on the machine's monotonic clock.
        text: what was seen.
    """

    rule: str
    name: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.name + ': ' if self.name else ''}{self.text} (at {self.at:.6f})"
