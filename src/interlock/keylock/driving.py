"""The steps of a lock as generators, and the two loops that perform them: for threads and for asyncio tasks.

A step yields a `Command` or a `Pause`, gets the reply, or the client's exception thrown in, and returns its result.
So the steps exist once, and no client library is imported: a client is whatever has `execute_command`.
"""

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias, TypeVar

from interlock.keylock.tries import Tries

T = TypeVar("T")

LAST_WORD = 5.0
"""Seconds that a cancelled task waits for the reply to the command that it has sent."""

_RAW: dict[str, object] = {"NEVER_DECODE": True}  # bytes, whatever decode_responses says
_RAW_SET: dict[str, object] = {"NEVER_DECODE": True, "get": True}  # ... and not made into a bool


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


class Pause(NamedTuple):
    """Let so many seconds pass."""

    seconds: float


Op: TypeAlias = Generator[Command | Pause, Any, T]


def run(client: Any, op: Op[T]) -> T:
    """Perform a step in the calling thread.

    Args:
        client: what has `execute_command`.
        op: the step, not yet started.

    Returns:
        What the step returns.

    Raises:
        Whatever the step raises; an exception of the client, or an interrupt, is thrown into it first.
    """
    advance: Callable[[Any], Command | Pause] = op.send
    value: Any = None
    try:
        while True:
            try:
                request = advance(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                if isinstance(request, Command):
                    value = request.on(client)
                else:
                    time.sleep(request.seconds)
                    value = None
                advance = op.send
            except BaseException as error:
                advance, value = op.throw, error
    finally:
        op.close()  # an interrupt between two requests


def run_or_undo(client: Any, op: Op[T], undo: Callable[[], Op[object]]) -> T:
    """As `run`; if it is interrupted, perform `undo` before the interrupt goes on."""
    try:
        return run(client, op)
    except Exception:
        raise
    except BaseException:
        run(client, undo())
        raise


async def arun(client: Any, op: Op[T], patience: float | None = None) -> T:
    """Perform a step in the running task; as `run`.

    A cancellation is thrown into the step when the reply to the command on its way is there, so that what is sent
    then, to clean up, can't overtake it.

    Args:
        client, op: as for `run`.
        patience: seconds for each reply; None for as long as the client waits.
    """
    advance: Callable[[Any], Command | Pause] = op.send
    value: Any = None
    try:
        while True:
            try:
                request = advance(value)
            except StopIteration as stop:
                result: T = stop.value
                return result
            try:
                if isinstance(request, Command):
                    value = await _answer(client, request, patience)
                else:
                    await asyncio.sleep(request.seconds)
                    value = None
                advance = op.send
            except BaseException as error:
                advance, value = op.throw, error
    finally:
        op.close()


async def arun_or_undo(client: Any, op: Op[T], undo: Callable[[], Op[object]]) -> T:
    """As `arun`; if it is cancelled, perform `undo` before the cancellation goes on."""
    try:
        return await arun(client, op)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        await arun(client, undo(), LAST_WORD)
        raise


async def _answer(client: Any, command: Command, patience: float | None) -> Any:
    task = asyncio.ensure_future(command.on(client))
    try:
        if patience is None:
            return await asyncio.shield(task)
        await end_of(task, patience)
    except asyncio.CancelledError:
        await end_of(task, LAST_WORD)
        if not task.cancelled():
            task.exception()  # seen: nobody else asks for it
        raise
    if task.cancelled():
        raise TimeoutError(f"no reply within {patience:g} s")
    return task.result()


async def end_of(task: "asyncio.Future[Any]", patience: float) -> None:
    """Wait until the reply is there, but not for ever: the server may be a black hole."""
    end = time.monotonic() + patience
    while not task.done():
        try:
            await asyncio.wait((task,), timeout=max(0.0, end - time.monotonic()))
            if time.monotonic() >= end:
                task.cancel()
        except asyncio.CancelledError:
            pass  # the first one is raised when the reply is there
