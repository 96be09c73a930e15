"""The common part of the lock objects of threads and of tasks."""

from typing import Generic, Self, TypeVar

L = TypeVar("L")
MAX_LISTED_HOLDS = 16


class Same:
    """Returns itself as its copy, because a lock is identified by its name."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class ReadWrite(Generic[L]):
    """A reader/writer lock in first-come, first-served order, without starvation."""

    def __init__(self, reader: L, writer: L) -> None:
        self._reader = reader
        self._writer = writer

    def read(self) -> L:
        """Return the shared lock of readers."""
        return self._reader

    def write(self) -> L:
        """Return the exclusive lock of a writer."""
        return self._writer

    def __repr__(self) -> str:
        return f"<ReadWrite of {self._reader!r}>"
