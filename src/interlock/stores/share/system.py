"""The system calls of the store: the one place where a test can inject the faults of a network file system."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class System:
    """Performs system calls."""

    def perform(self, call: Callable[P, T], *args: P.args, **how: P.kwargs) -> T:
        """Perform a call, such as `os.rename`.

        Args:
            call: the function.
            args, how: its arguments.

        Raises:
            OSError: the call failed, or its reply was lost.
        """
        return call(*args, **how)
