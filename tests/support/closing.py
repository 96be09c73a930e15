"""What closes itself."""

from typing import Self


class Closing:
    """A context manager that closes itself at the end of the block."""

    def close(self) -> None:
        """End everything; safe to repeat."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *why: object) -> None:
        self.close()
