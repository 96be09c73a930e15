"""What a store must offer for optimistic transactions: Redis does, and rows that have a version can.

A backend begins attempts. An attempt is one run of the caller's function: it remembers what was read (`watch`,
`read`), collects what is to be written, and does all of that at once or nothing (`commit`).
"""

from collections.abc import Callable, Generator, Sequence
from types import TracebackType
from typing import Any, NoReturn, Protocol

from interlock.core.errors import InvalidArgument
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
    """A store of which threads ask."""

    def begin(self, tries: Tries) -> Attempt:
        """Return the attempt for the next try.

        Args:
            tries: `tries.number` says which try it is, `tries.io_timeout(now)` how long an answer may take.
        """


class AsyncAttempt(Protocol):
    """One try of a task; arguments, answers and errors are those of `Attempt`."""

    @property
    def transaction(self) -> Any:
        """What the caller's function is given."""

    @property
    def keys(self) -> Sequence[Any]:
        """What is watched, for messages."""

    async def watch(self, keys: Sequence[Any]) -> None:
        """Remember these as they are now."""

    async def read(self, request: Any) -> Any:
        """Read now, and watch what is read."""

    async def commit(self) -> bool:
        """Do all that was queued, in one step, unless something that is watched has changed."""

    async def __aenter__(self) -> "AsyncAttempt": ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None: ...


class AsyncBackend(Protocol):
    """A store of which tasks ask."""

    def begin(self, tries: Tries) -> AsyncAttempt:
        """Return the attempt for the next try."""


_UNKNOWN = object()


class Queued:
    """A write that waits for the commit; returned from the function, it stands for its reply.

    Args:
        request: what is to be written.
        name: what it is called in messages.
    """

    __slots__ = ("_reply", "name", "request")

    def __init__(self, request: Any, name: str) -> None:
        self.request = request
        self.name = name
        self._reply: Any = _UNKNOWN

    @property
    def reply(self) -> Any:
        """The store's reply, once the transaction is committed.

        Raises:
            InvalidArgument: it is not.
        """
        if self._reply is _UNKNOWN:
            self._too_early()
        return self._reply

    def settle(self, reply: Any) -> None:
        """For backends: the transaction was committed, and this is the reply."""
        self._reply = reply

    def _too_early(self, *_: object) -> NoReturn:
        raise InvalidArgument(
            f"{self.name} is only queued, and has no reply before the commit: return it from the function, or look "
            f"at its .reply afterwards; what must be known now is read with tx.ask(...)"
        )

    # Whoever takes it for the reply learns at once that it is none.
    __bool__: Callable[["Queued"], bool] = _too_early
    __int__: Callable[["Queued"], int] = _too_early
    __float__: Callable[["Queued"], float] = _too_early
    __iter__: Callable[["Queued"], Any] = _too_early
    __len__: Callable[["Queued"], int] = _too_early
    __getitem__: Callable[["Queued", Any], Any] = _too_early

    def __await__(self) -> Generator[None, None, "Queued"]:
        """Awaiting it waits for nothing: `await tx.set(...)` does the same as `tx.set(...)`."""
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"<queued {self.name}{'' if self._reply is _UNKNOWN else f': {self._reply!r}'}>"


def answer_of(value: Any) -> Any:
    """Return what `transact` returns when its function returned `value`."""
    return value.reply if isinstance(value, Queued) else value
