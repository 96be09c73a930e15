"""The requests that a protocol may yield, and nothing that performs them.

A protocol is a generator.  It yields one of these, a trampoline (`runtime.sync.run`, `runtime.aio.arun`, the model
checker) performs it and sends the result back.  Protocols therefore know no clock, thread, socket or event loop.
"""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Call(NamedTuple):
    """A short call inside this process (microseconds; never blocks on another holder)."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()


class Ask(NamedTuple):
    """Send `message` to `server`, and wait for the reply in the caller's colour."""

    server: "Server"
    message: Any


class Sleep(NamedTuple):
    """Let `seconds` pass."""

    seconds: float


class Now(NamedTuple):
    """Ask for the caller's monotonic clock, in seconds."""


class Subscribe(NamedTuple):
    """Ask `source` for something to wait on, in the caller's colour (thread or task)."""

    source: "WakeupSource"


class Before(NamedTuple):
    """Ask whether the caller's monotonic clock still stands before `moment`."""

    moment: float


class Wait(NamedTuple):
    """Wait on `wakeup`, at most `seconds` and not past `deadline`; the result is the message, or None."""

    wakeup: Any
    seconds: float
    deadline: float | None = None


NOW = Now()
Op: TypeAlias = Generator[Any, Any, T]
"""A protocol in progress: yields requests, takes their results, returns a T."""


class ThreadWakeup(Protocol):
    """What a thread waits on."""

    def wait(self, seconds: float) -> Any:
        """Block until told, or until `seconds` have passed; return the message or None."""

    def wake(self) -> None:
        """Let the waiter look again, from any thread; a wake-up that comes before the wait ends it at once."""

    def close(self) -> None:
        """Give it back; nobody waits on it any more."""


class TaskWakeup(Protocol):
    """What an asyncio task waits on."""

    async def wait(self, seconds: float) -> Any:
        """As `ThreadWakeup.wait`, without blocking the loop."""

    def wake(self) -> None:
        """As `ThreadWakeup.wake`."""

    def close(self) -> None:
        """Give it back; nobody waits on it any more."""


class Server(Protocol):
    """What answers messages; a store that is used by one colour only has just its method."""

    def ask(self, message: Any) -> Any:
        """Send the message and block until the reply is there."""

    async def aask(self, message: Any) -> Any:
        """As `ask`, without blocking the loop."""


class WakeupSource(Protocol):
    """What can make wake-ups: a store."""

    def thread_wakeup(self) -> ThreadWakeup:
        """Return a wake-up for the calling thread."""

    def task_wakeup(self) -> TaskWakeup:
        """Return a wake-up for the calling task."""
