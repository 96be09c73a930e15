"""The end of a connection of asyncio tasks: waiters give up, what is held is released, then the store is closed."""

import asyncio
import atexit
import socket
import time
from collections.abc import Sequence
from operator import methodcaller
from typing import Any

from interlock.core.claims import Claim
from interlock.core.errors import LockError
from interlock.locks.aio.grants import AsyncGrant
from interlock.locks.aio.session import Session, open_sessions
from interlock.locks.aio.watchdog import LoopWatchdog
from interlock.locks.closing import (
    LONGEST_LOOK,
    SHORTEST_LOOK,
    WITHDRAW_LIMIT,
    call_off,
    claim_of,
    others_go,
    others_leave,
    owner_of,
)
from interlock.locks.leases import Entry
from interlock.locks.session import STAYS_IN_LINE, Entering, name_of
from interlock.runtime import log
from interlock.runtime.aio import arun, to_its_end

AT_EXIT_LIMIT = 1.0
_RUNS = methodcaller("is_running")


async def begin(session: Session) -> None:
    """Close, and come to the end of it even if the calling task is cancelled meanwhile.

    Raises:
        LockError: something could not be released; everything else was.
    """
    loop = asyncio.get_running_loop()
    if session.ended:
        return
    session.closed = True
    if session.closing is None or session.closing.done() or session.closing.get_loop().is_closed():
        session.closing = loop.create_task(close(session), name="interlock-close")
    elif session.closing.get_loop() is not loop:
        return
    await to_its_end(session.closing)


async def close(session: Session) -> None:
    """Close; the first one to call it has said that it is closed.

    Raises:
        LockError: something could not be released; everything else was.
    """
    failure: BaseException | None = None
    try:
        await withdraw(session)
    finally:  # also when asyncio.run cancels this task: the next close() does nothing
        for watchdog in list(session.watchdogs.values()):
            failure = await _release(session, watchdog) or failure
        await _until_left(session)
        await _end(session)
    if failure is not None:
        raise failure


async def _end(session: Session) -> None:
    session.ended = True
    for watchdog in list(session.watchdogs.values()):
        if watchdog.runs and watchdog.loop is not asyncio.get_running_loop():
            watchdog.loop.call_soon_threadsafe(watchdog.stop)
        else:
            watchdog.stop()
    session.watchdogs.clear()
    session.last_watchdog = None
    await session.store.aclose()


async def loop_ends(session: Session, watchdog: LoopWatchdog[AsyncGrant]) -> None:
    """Release what is still held on a loop that ends without `close()`, and close its connections."""
    if session.ended or watchdog.loop is not asyncio.get_running_loop():
        return
    failure: BaseException | None = None
    try:
        async with asyncio.timeout(AT_EXIT_LIMIT):
            failure = await _withdraw_destroyed(session, watchdog.loop)
            failure = await _release(session, watchdog) or failure
            await session.store.leave_loop()
    except (LockError, TimeoutError) as error:
        failure = failure or error
    if failure is not None:
        log.warn(
            "could not release at the end of an event loop, the leases will end: %s",
            str(failure) or type(failure).__name__,
        )
    watchdog.stop()
    session.watchdogs.pop(watchdog.loop, None)


async def _withdraw_destroyed(session: Session, loop: asyncio.AbstractEventLoop) -> BaseException | None:
    """Take out of the line what tasks of a loop wait for that were destroyed; return the first failure."""
    failure: BaseException | None = None
    for id, each in list(session.entering.items()):  # other loops go on meanwhile
        if owner_of(each) is loop:
            try:
                await arun(session.store.leave(claim_of(each)))
                session.entering.pop(id, None)
            except LockError as error:
                failure = failure or error
    return failure


async def withdraw(session: Session) -> None:
    """Let all waiters give up, and wait until they have left the line; what does not leave by itself is taken out."""
    deadline = time.monotonic() + WITHDRAW_LIMIT
    pause = SHORTEST_LOOK
    while others_go(session, _RUNS) and time.monotonic() <= deadline:
        await asyncio.sleep(pause)
        pause = min(LONGEST_LOOK, pause * 2)
    for id, each in list(session.entering.items()):
        session.entering.pop(id, None)  # its loop or its task is no more, or it hangs
        try:
            await arun(session.store.leave(claim_of(each)))
        except LockError as error:
            log.warn(STAYS_IN_LINE, error)


async def _release(session: Session, watchdog: LoopWatchdog[AsyncGrant]) -> BaseException | None:
    """Release all that is held on one loop, the last one first, whatever happens; return the first failure."""
    failure: BaseException | None = None
    for entry in reversed(watchdog.entries):
        try:
            if entry.grant is not None and watchdog.loop is asyncio.get_running_loop():
                await entry.grant.release()
            else:
                await _leave(session, entry)
            watchdog.forget(entry)
        except BaseException as error:
            failure = failure or error
    return failure


async def _until_left(session: Session) -> None:
    """Wait for those who began to release before it could be done for them: the store is not closed under them."""
    deadline = time.monotonic() + WITHDRAW_LIMIT
    while others_leave(session, _RUNS) and time.monotonic() < deadline:  # noqa: ASYNC110 - they may be of other loops
        await asyncio.sleep(SHORTEST_LOOK)
    for id, (loop, claim) in list(session.leaving.items()):
        if not loop.is_running():
            session.leaving.pop(id, None)
            try:
                await arun(session.store.leave(claim))  # whoever began to release it comes to no end
            except LockError as error:
                log.warn(STAYS_IN_LINE, error)


async def _leave(session: Session, entry: Entry[AsyncGrant]) -> None:
    """Take a claim out of the line whose loop is another one, or whose grant was dropped."""
    grant = entry.grant
    if grant is None:
        await arun(session.store.leave(entry.claim))
        return
    again, grant._leaving = grant._leaving, True
    grant._left(await arun(session.store.leave(entry.claim)), again)


def at_exit(session: Session) -> None:
    """End with the interpreter: leave no claim behind, and hand nothing over while a loop still runs."""
    held = [(watchdog, entry) for watchdog in list(session.watchdogs.values()) for entry in watchdog.entries]
    if not held and not session.entering and not session.leaving:
        session.store.close()
        return
    if session.store.frees_at_death:
        return  # the kernel does it when nobody works any more
    waiting = _withdraw_in_other_threads(session)
    over = [(watchdog, entry) for watchdog, entry in held if not watchdog.runs]
    gone = [claim_of(each) for each in waiting if not owner_of(each).is_running()]
    gone += [claim for loop, claim in list(session.leaving.values()) if not loop.is_running()]
    left = len(held)
    if over or gone:
        left -= _release_after_the_end(session, over, gone, close=len(over) == left)
    if left:
        log.warn(
            "%d lock(s) of aconnect() were still held at exit (%s) and stay until their leases end: "
            "end the program's loop with `await locks.close()`, or `async with aconnect(...) as locks`",
            left,
            ", ".join(repr(name_of(entry.claim.spec.key)) for _, entry in held[:3]) + (", ..." if left > 3 else ""),
        )


def _withdraw_in_other_threads(session: Session) -> list[Entering]:
    """Let those give up who wait on loops that still run, in daemon threads; return who is still in a line."""
    deadline = time.monotonic() + AT_EXIT_LIMIT
    while True:
        waiting = list(session.entering.values())
        running = [each for each in waiting if owner_of(each).is_running()]
        if not running or time.monotonic() > deadline:
            return waiting
        for each in running:
            call_off(each)
        time.sleep(LONGEST_LOOK)


def _release_after_the_end(
    session: Session,
    over: "Sequence[tuple[LoopWatchdog[AsyncGrant], Entry[AsyncGrant]]]",
    gone: Sequence[Claim],
    close: bool,
) -> int:
    """Release, on a loop made for it, what was acquired on loops that have ended; return how many that were."""
    released = 0

    async def release(watchdog: LoopWatchdog[AsyncGrant], entry: Entry[AsyncGrant]) -> None:
        nonlocal released
        await _leave(session, entry)
        watchdog.forget(entry)
        released += 1

    async def release_all() -> None:
        async with asyncio.timeout(AT_EXIT_LIMIT):
            # Side by side: what nobody answers for holds back no other.
            ends = await asyncio.gather(
                *(release(*each) for each in over),
                *(arun(session.store.leave(claim)) for claim in gone),
                return_exceptions=True,
            )
            for failure in [each for each in ends if isinstance(each, BaseException)]:
                raise failure
            if close:
                await session.store.aclose()

    loop = None
    try:
        loop = LastLoop()
        loop.run_until_complete(release_all())
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


def _at_exit() -> None:
    for session in open_sessions:
        if not session.ended:
            session.closed = True
            try:
                at_exit(session)
            except Exception as error:
                log.warn("could not close at exit: %s", error)


atexit.register(_at_exit)
