"""Writes that wait for the commit."""

from collections.abc import Callable, Generator
from typing import Any, NoReturn

from interlock.core.errors import InvalidArgument

_UNKNOWN = object()


class Queued:
    """A write that waits for the commit; returned from the function, it stands for its reply.

    Args:
        request: what is to be written.
        name: what it is called in messages.
    """

    __slots__ = ("_reply", "name", "request")

    def __init__(self, request: object, name: str) -> None:
        self.request: Any = request
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

    def settle(self, reply: object) -> None:
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
