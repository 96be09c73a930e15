"""The checker's runtime: each primitive is a request to the world, which may let anything happen before it answers.

It takes the place of `runtime._aio` for code that gets its runtime as an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any


@dataclass(frozen=True, slots=True)
class Before:
    """Ask whether the caller's own clock still stands before a moment."""

    moment: float


@dataclass(frozen=True, slots=True)
class Now:
    """Ask for the caller's own clock."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Let some time pass."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait until told, or until some time has passed; the answer is the message, or None."""


@dataclass(frozen=True, slots=True)
class FreshId:
    """Ask for an id that was never used before."""


@coroutine
def effect(request: object) -> Generator[object, Any, Any]:
    """Suspend with a request; return the world's answer."""
    return (yield request)


class AsyncWaiter:
    """What a caller waits on; the world knows whose it is."""

    __slots__ = ()

    async def wait(self, seconds: float) -> Any:
        """Wait for the caller's turn."""
        return await effect(Wait())

    def tell(self, message: Any = None) -> None:
        """Nothing: the world answers who waits."""

    def close(self) -> None:
        """Nothing to give back."""


class StoppedClock:
    """As `runtime.clock`, where no time passes but by the world's leave."""

    @staticmethod
    def now() -> float:
        """Return always the same."""
        return 0.0


async def give_way() -> None:
    """Nothing: the world lets others run at each request."""


async def sleep(seconds: float) -> None:
    """Let some time pass."""
    await effect(Sleep())


class Runtime:
    """As `runtime._aio`, for one caller.

    `fresh_id` can't suspend, so an id is kept in store; at the next place that can, the world is asked for another.
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
        """Tell whether the caller's clock still stands before a moment."""
        return bool(await self.ask(Before(moment)))

    async def time_by(self, now: Callable[[], float]) -> float:
        """Return the time by the caller's clock."""
        return float(await self.ask(Now()))

    async def sleep(self, seconds: float) -> None:
        """Let some time pass."""
        await self.ask(Sleep())


def no_clock() -> float:
    """Stand for the clock of a caller: only the world knows what it shows."""
    raise AssertionError("a time was read without the runtime")
