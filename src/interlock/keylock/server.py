"""The server of a client: sends the commands of the steps, for threads and for asyncio tasks.

No client library is imported: a client is whatever has `execute_command`.
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from time import monotonic
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from interlock.core.effects import Op
from interlock.keylock.holdings import Holdings
from interlock.keylock.tries import Tries
from interlock.runtime.aio import arun
from interlock.runtime.sync import run

T = TypeVar("T")

CANCELLED_IO_TIMEOUT = 5.0
"""Seconds that a cancelled task waits for the reply to the command that it has sent."""

_RAW: dict[str, object] = {"NEVER_DECODE": True}  # bytes, whatever decode_responses says
_RAW_SET: dict[str, object] = {"NEVER_DECODE": True, "get": True}  # ... and not made into a bool

_io_timeout: ContextVar[float | None] = ContextVar("interlock_io_timeout", default=None)
"""Seconds that the running task waits for each reply; None for as long as the client waits."""


class Command(NamedTuple):
    """A command for the server, e.g. `("GET", key)`; the result is its reply, strings as bytes.

    Attributes:
        words: the command.
        tries: counts how often the client sends it; None if that makes no difference.
    """

    words: tuple[Any, ...]
    tries: Tries | None = None

    def on(self, client: Any) -> Any:
        """Send it; return what `execute_command` of the client returns."""
        if self.tries is not None:
            client = self.tries.counted(client)
        return client.execute_command(*self.words, **(_RAW_SET if self.words[0] == "SET" else _RAW))


class Known:
    """What is known about a server.

    Attributes:
        ways: which way worked the last time, for each thing that can be asked in several.
        reentrant: who holds which re-entrant lock.
    """

    def __init__(self) -> None:
        self.ways: dict[str, int] = {}
        self.reentrant = Holdings()


_known: "WeakKeyDictionary[Any, Known]" = WeakKeyDictionary()


def _known_of(client: Any) -> Known:
    """Return what is known about the server of a client; clients that share their connections share it."""
    anchor = getattr(client, "connection_pool", None) or client
    try:
        return _known.setdefault(anchor, Known())
    except TypeError:  # can't be hashed, or not be referred to weakly
        return Known()


class KeyServer:
    """A client as the server that `run` and `arun` ask.

    Args:
        client: what has `execute_command`.

    Attributes:
        known: what is known about the server.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self.known = _known_of(client)

    def ask(self, message: Command) -> Any:
        """Send a command and block until its reply is there."""
        return message.on(self._client)

    async def aask(self, message: Command) -> Any:
        """Send a command and await its reply.

        A cancellation is raised when the reply to the command on its way is there, so that what is sent then, to
        clean up, can't overtake it.
        """
        task = asyncio.ensure_future(message.on(self._client))
        io_timeout = _io_timeout.get()
        try:
            if io_timeout is None:
                return await asyncio.shield(task)
            await end_of(task, io_timeout)
        except asyncio.CancelledError:
            await end_of(task, CANCELLED_IO_TIMEOUT)
            if not task.cancelled():
                task.exception()  # seen: nobody else asks for it
            raise
        if task.cancelled():
            raise TimeoutError(f"no reply within {io_timeout:g} s")
        return task.result()


def run_or_undo(op: Op[T], undo: Callable[[], Op[object]]) -> T:
    """Run; if it is interrupted, perform `undo` before the interrupt goes on."""
    try:
        return run(op)
    except Exception:
        raise
    except BaseException:
        run(undo())
        raise


async def arun_or_undo(op: Op[T], undo: Callable[[], Op[object]]) -> T:
    """Run on asyncio; if it is cancelled, perform `undo` before the cancellation goes on."""
    try:
        return await arun(op)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        usual = _io_timeout.set(CANCELLED_IO_TIMEOUT)
        try:
            await arun(undo())
        finally:
            _io_timeout.reset(usual)
        raise


async def end_of(task: "asyncio.Future[Any]", seconds: float) -> None:
    """Wait until the reply is there, but not for ever: the server may be a black hole."""
    end = monotonic() + seconds
    while not task.done():
        try:
            await asyncio.wait((task,), timeout=max(0.0, end - monotonic()))
            if monotonic() >= end:
                task.cancel()
        except asyncio.CancelledError:
            pass  # the first one is raised when the reply is there
