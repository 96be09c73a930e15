"""The checker's runtime: each primitive is a request to the world, which may take other steps before it answers.

It replaces `runtime._aio` for code that gets its runtime as an argument.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Before:
    """Ask whether a moment has not come yet by the caller's own clock."""

    moment: float


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for the caller's own clock."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let some time pass."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until notified, or until some time has passed; the answer is the message, or None."""


@dataclass(frozen=True, slots=True)
class FreshId:
    """Ask for an id that was never used before."""


@coroutine
def effect(request: object) -> Generator[object, Any, Any]:
    """Suspend with a request; return the world's answer."""
    return (yield request)


class AsyncWaiter:
    """The waiter of a caller; the world knows whose it is."""

    __slots__ = ()

    async def wait(self, seconds: float) -> Any:
        """Wait until the world notifies the caller."""
        return await effect(Wait())

    def wake(self, message: Any = None) -> None:
        """Do nothing: the world answers the request of `wait`."""

    def close(self) -> None:
        """Do nothing."""


class StoppedClock:
    """As `runtime.clock`, but the world decides about the passing of time."""

    @staticmethod
    def now() -> float:
        """Return a constant."""
        return 0.0


async def yield_to_loop() -> None:
    """Do nothing: the world lets others run at each request."""


async def sleep(seconds: float) -> None:
    """Let some time pass."""
    await effect(Sleep())


async def finish(function: Callable[..., Awaitable[T]], *args: object) -> T:
    """Call a function; the world lets nobody cancel what follows a cancellation."""
    return await function(*args)


class Runtime:
    """As `runtime._aio`, for one caller.

    `fresh_id` can't suspend, so it returns an id that was requested before; the next primitive that can suspend
    requests another one.
    """

    __slots__ = ("_id",)

    def __init__(self) -> None:
        self._id: str | None = None

    async def ask(self, request: object) -> Any:
        """Suspend with a request."""
        if self._id is None:
            self._id = await effect(FreshId())
        return await effect(request)

    def fresh_id(self) -> str:
        """Return an id that was never used before."""
        id, self._id = self._id, None
        assert id is not None, "two ids were asked for without a request in between"
        return id

    async def before(self, now: Callable[[], float], moment: float) -> bool:
        """Return True if a moment has not come yet by the caller's clock."""
        return bool(await self.ask(Before(moment)))

    async def time_by(self, now: Callable[[], float]) -> float:
        """Return the time by the caller's clock."""
        return float(await self.ask(Now()))

    async def sleep(self, seconds: float) -> None:
        """Let some time pass."""
        await self.ask(Sleep())


def no_clock() -> float:
    """A placeholder for the clock of a caller, which only the world knows."""
    raise AssertionError("a time was read without the runtime")
