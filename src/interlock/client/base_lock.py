"""What the lock objects of threads and of tasks share."""

from typing import Generic, Self, TypeVar

L = TypeVar("L")
FEW = 16


class Same:
    """What it is copied to is the same thing: a lock is what its name says."""

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


class ReadWrite(Generic[L]):
    """A reader/writer lock, in first come, first served order: no writer starves, no reader barges."""

    def __init__(self, reader: L, writer: L) -> None:
        self._reader = reader
        self._writer = writer

    def read(self) -> L:
        """Return the lock that readers share."""
        return self._reader

    def write(self) -> L:
        """Return the lock that one writer has for itself."""
        return self._writer

    def __repr__(self) -> str:
        return f"<ReadWrite of {self._reader!r}>"
