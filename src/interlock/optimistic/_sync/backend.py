# Generated from _async/backend.py by tools/unasync.py; change that one.
"""What a store must offer for optimistic transactions: Redis does, and rows that have a version can.

A backend begins attempts. An attempt is one run of the caller's function: it remembers what was read (`watch`,
`read`), collects what is to be written, and does all of that at once or nothing (`commit`).
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol

from interlock.optimistic.tries import Tries


class Attempt(Protocol):
    """One try; a context manager, whose end forgets everything that was not committed.

    It swallows an exception that says that what was read has changed: then there is another try.
    """

    @property
    def transaction(self) -> Any:
        """What the caller's function is given."""

    @property
    def keys(self) -> Sequence[Any]:
        """What is watched, for messages."""

    def watch(self, keys: Sequence[Any]) -> None:
        """Remember these as they are now: a change of any of them from now on makes `commit` return False."""

    def read(self, request: Any) -> Any:
        """Read now, and watch what is read."""

    def commit(self) -> bool:
        """Do all that was queued, in one step, unless something that is watched has changed.

        Returns:
            True if it was done; False if nothing was.

        Raises:
            UnknownOutcome: no answer came.
            TryAgain: nothing was done for another reason, which may pass.
        """

    def __enter__(self) -> "Attempt": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class Backend(Protocol):
    """A store that `transact` can ask."""

    def begin(self, tries: Tries) -> Attempt:
        """Return the attempt for the next try.

        Args:
            tries: `tries.number` says which try it is, `tries.io_timeout(now)` how long an answer may take.
        """
