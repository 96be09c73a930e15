"""The end of a connection of asyncio tasks: waiters give up, what is held is released, then the store is closed."""

import asyncio
import socket
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from interlock.core.acquire import AcquireCall
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockError, StoreError
from interlock.locks.aio.grants import AsyncGrant
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.locks.base import name_of
from interlock.locks.leases import Entry
from interlock.runtime import log
from interlock.runtime.aio import arun
from interlock.stores.base import frees_at_death

if TYPE_CHECKING:
    from interlock.locks.aio.connection import AsyncLocks

Entering: TypeAlias = tuple[Claim, asyncio.AbstractEventLoop] | AcquireCall
"""A call of acquire that has not come to its end: its claim, and on which loop."""

WITHDRAW_LIMIT = 2.0  # seconds that closing waits for those who give up; about one I/O time-out
AT_EXIT_LIMIT = 1.0
SHORTEST_LOOK, LONGEST_LOOK = 0.0002, 0.01


async def close(locks: "AsyncLocks") -> None:
    """Close; the first one to call it has said that it is closed.

    Raises:
        LockError: something could not be released; everything else was.
    """
    failure: BaseException | None = None
    try:
        await withdraw(locks)
    finally:  # also when asyncio.run cancels this task: the next close() does nothing
        for watchdog in list(locks._watchdogs.values()):
            failure = await _release(locks, watchdog) or failure
        await _end(locks)
    if failure is not None:
        raise failure


async def _end(locks: "AsyncLocks") -> None:
    locks._ended = True
    for watchdog in list(locks._watchdogs.values()):
        if watchdog.runs and watchdog.loop is not asyncio.get_running_loop():
            watchdog.loop.call_soon_threadsafe(watchdog.stop)
        else:
            watchdog.stop()
    locks._watchdogs.clear()
    locks._last_watchdog = None
    await _close_store(locks)


async def loop_ends(locks: "AsyncLocks", watchdog: LoopWatchdog[AsyncGrant]) -> None:
    """Release what is still held on a loop that ends without `close()`, and close its connections."""
    if locks._ended or watchdog.loop is not asyncio.get_running_loop():
        return
    try:
        async with asyncio.timeout(AT_EXIT_LIMIT):
            for id, each in [(id, each) for id, each in locks._entering.items() if loop_of(each) is watchdog.loop]:
                await arun(locks._store.leave(_claim_of(each)))  # its task was destroyed
                locks._entering.pop(id, None)
            failure = await _release(locks, watchdog)
            leave_loop = getattr(locks._store, "leave_loop", None)
            if leave_loop is not None:
                await leave_loop()
    except (LockError, TimeoutError) as error:
        failure = error
    if failure is not None:
        log.warn("could not release at the end of an event loop, the leases will end: %s", failure)
    watchdog.stop()
    locks._watchdogs.pop(watchdog.loop, None)


async def withdraw(locks: "AsyncLocks") -> None:
    """Let all who wait give up, and wait until they have left the line; who can't by itself is taken out of it."""
    deadline = time.monotonic() + WITHDRAW_LIMIT
    pause = SHORTEST_LOOK
    entering = locks._entering
    while True:
        others = False
        for each in list(entering.values()):
            if isinstance(each, AcquireCall) and not each.closed:
                each.call_off()
            others = others or loop_of(each).is_running()
        if not others or time.monotonic() > deadline:
            break
        await asyncio.sleep(pause)
        pause = min(LONGEST_LOOK, pause * 2)
    for id, each in list(entering.items()):
        entering.pop(id, None)  # its loop or its task is no more, or it hangs
        try:
            await arun(locks._store.leave(_claim_of(each)))
        except LockError as error:
            log.warn("could not take a claim out of the line, its lease will end: %s", error)


async def _release(locks: "AsyncLocks", watchdog: LoopWatchdog[AsyncGrant]) -> BaseException | None:
    """Release all that is held on one loop, the last one first, whatever happens; return the first failure."""
    failure: BaseException | None = None
    for entry in reversed(watchdog.entries):
        try:
            if entry.grant is not None and watchdog.loop is asyncio.get_running_loop():
                await entry.grant.release()
            else:
                await _leave(locks, entry)
            watchdog.forget(entry)
        except BaseException as error:
            failure = failure or error
    return failure


async def _leave(locks: "AsyncLocks", entry: Entry[AsyncGrant]) -> None:
    """Take a claim out of the line whose loop is another one, or whose grant was dropped."""
    grant = entry.grant
    again = False
    if grant is not None:
        again, grant._leaving = grant._leaving, True
    removed = await arun(locks._store.leave(entry.claim))
    if grant is not None:
        grant._left(removed, again)


async def _close_store(locks: "AsyncLocks") -> None:
    closing = getattr(locks._store, "aclose", None)
    if closing is not None:
        await closing()
    else:
        locks._store.close()


def at_exit(locks: "AsyncLocks") -> None:
    """End with the interpreter: leave no ghost, and let nobody in while a loop of this process still runs."""
    held = [(watchdog, entry) for watchdog in locks._watchdogs.values() for entry in watchdog.entries]
    if not held and not locks._entering:
        locks._store.close()
        return
    if frees_at_death(locks._store):
        return  # the kernel does it when nobody works any more
    waiting = _withdraw_in_other_threads(locks)
    over = [(watchdog, entry) for watchdog, entry in held if not watchdog.runs]
    gone = [_claim_of(each) for each in waiting if not loop_of(each).is_running()]
    left = len(held)
    if over or gone:
        left -= _release_after_the_end(locks, over, gone, close=len(over) == left)
    if left:
        log.warn(
            "%d lock(s) of aconnect() were still held at exit (%s) and stay until their leases end: "
            "end the program's loop with `await locks.close()`, or `async with aconnect(...) as locks`",
            left,
            ", ".join(repr(name_of(entry.claim.spec.key)) for _, entry in held[:3]) + (", ..." if left > 3 else ""),
        )


def _withdraw_in_other_threads(locks: "AsyncLocks") -> list[Entering]:
    """Let those give up who wait on loops that still run, in daemon threads; return who is still in a line."""
    deadline = time.monotonic() + AT_EXIT_LIMIT
    while True:
        waiting = list(locks._entering.values())
        running = [each for each in waiting if loop_of(each).is_running()]
        if not running or time.monotonic() > deadline:
            return waiting
        for each in running:
            if isinstance(each, AcquireCall) and not each.closed:
                each.call_off()
        time.sleep(LONGEST_LOOK)


def _release_after_the_end(
    locks: "AsyncLocks",
    over: "Sequence[tuple[LoopWatchdog[AsyncGrant], Entry[AsyncGrant]]]",
    gone: Sequence[Claim],
    close: bool,
) -> int:
    """Release, on a loop made for it, what was acquired on loops that have ended; return how many that were."""
    released = 0

    async def release() -> None:
        nonlocal released
        async with asyncio.timeout(AT_EXIT_LIMIT):
            for claim in gone:
                await arun(locks._store.leave(claim))
            for watchdog, entry in over:
                await _leave(locks, entry)
                watchdog.forget(entry)
                released += 1
            if close:
                await _close_store(locks)

    loop = None
    try:
        loop = LastLoop()
        loop.run_until_complete(release())
    except BaseException as error:
        log.warn("could not release at exit: %s", str(error) or type(error).__name__)
    finally:
        if loop is not None:
            loop.close()
    return released


class LastLoop(asyncio.SelectorEventLoop):
    """A loop for the exit of the interpreter, when no thread can be started any more, also none to resolve names."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> Any:
        """As that of every loop, in this thread."""
        return socket.getaddrinfo(host, port, **how)


def loop_of(each: Entering) -> asyncio.AbstractEventLoop:
    """Return the loop on which a call of acquire runs."""
    loop: asyncio.AbstractEventLoop = each.owner if isinstance(each, AcquireCall) else each[1]
    return loop


def _claim_of(each: Entering) -> Claim:
    return each.claim if isinstance(each, AcquireCall) else each[0]


def closed_meanwhile(spec: LockSpec) -> StoreError:
    """Return the error for who asked for a lock while the connection was closed."""
    return StoreError(f"the connection was closed while {name_of(spec.key)!r} was acquired: connect again")
