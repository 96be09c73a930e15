"""Wake-ups for tests of the file store."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace


class NotingWakeup:
    """A wake-up that notes what it is to watch."""

    def __init__(self) -> None:
        self.pipe = SimpleNamespace(number=7)
        self.watched: list[str] = []

    def be_reachable(self) -> None:
        """Others can ring; of no account here."""

    def stand_in(self, waiters: set[object]) -> None:
        """Be counted; of no account here."""

    def watch(self, tokens: Iterable[str]) -> None:
        self.watched = sorted(tokens)
