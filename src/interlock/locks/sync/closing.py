"""The end of a connection of threads: waiters give up, what is held is released, then the store is closed."""

import atexit
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from interlock.core.errors import LockError
from interlock.locks.closing import (
    LONGEST_LOOK,
    SHORTEST_LOOK,
    WITHDRAW_LIMIT,
    AtWork,
    claim_of,
    others_go,
    others_leave,
    owner_of,
)
from interlock.locks.leases import Entry
from interlock.locks.session import STAYS_IN_LINE
from interlock.locks.sync.grants import Grant
from interlock.locks.sync.session import Session, open_sessions
from interlock.runtime import log
from interlock.runtime.sync import run

GIVEN_UP_LIMIT = 0.1  # seconds that the exit waits for the threads which gave up
HANDLER_LIMIT = 10.0  # seconds that a signal handler may take after its close()


def close(session: Session[Any]) -> None:
    """Close; the first one to call it has said that it is closed.

    Raises:
        LockError: something could not be released; everything else was.
    """
    if _interrupts_one_of_our_calls(session):
        _close_beside(session, threading.current_thread())
        return
    failure = None
    try:
        withdraw(session, threading.current_thread())
    finally:  # also after a Ctrl-C: nobody can close again
        try:
            failure = _release(session, session.watchdog.entries)
            _until_left(session, threading.current_thread())
        finally:
            _close_store(session)
    if failure is not None:
        raise failure


def _close_beside(session: Session[Any], caller: threading.Thread) -> None:
    """Close in another thread: the interrupted call may hold what that needs, and goes on before the store ends."""
    failure: BaseException | None = None
    released = threading.Event()

    def closes() -> None:
        nonlocal failure
        try:
            withdraw(session, caller, interrupted=True)
            failure = _release(session, session.watchdog.entries)
            _until_left(session, caller)
            if failure is not None:
                log.warn("close(), called by a signal handler, could not release: %s", failure)
            released.set()
            deadline = time.monotonic() + HANDLER_LIMIT
            while session.entering and time.monotonic() < deadline:
                time.sleep(LONGEST_LOOK)
        finally:
            _close_store(session)

    closer = threading.Thread(target=closes, name="interlock-close")
    try:
        closer.start()
    except RuntimeError:  # the interpreter is shutting down, and closes by itself
        session.closing.release()
        return
    released.wait(WITHDRAW_LIMIT)
    if failure is not None:
        raise failure


def _close_store(session: Session[Any]) -> None:
    session.watchdog.stop()
    session.store.close()


def at_exit(session: Session[Any]) -> None:
    """End with the interpreter: leave no claim behind, and hand nothing over while a thread may still work."""
    waited = {owner_of(each) for each in list(session.entering.values())}
    withdraw(session, threading.current_thread())
    _see_them_end(waited)
    watchdog = session.watchdog
    held = watchdog.entries
    if held and not session.store.frees_at_death:
        failure = _release(session, [entry for entry in held if not _may_work(entry)], give_up_at_once=True)
        if failure is not None:
            log.warn("could not release at exit, the leases will end: %s", failure)
        held = watchdog.entries
        at_work = [entry.claim.who for entry in held if _may_work(entry)]
        if at_work:
            log.warn(
                "%d lock(s) of daemon threads that still work at exit (%s) stay until their leases end; stop these "
                "threads before the program ends",
                len(at_work),
                ", ".join(at_work),
            )
    if not held and not session.entering:
        _close_store(session)


def _see_them_end(threads: set[Any]) -> None:
    """Give threads that gave up a moment to end: one that tells why on stderr while Python ends makes it abort.

    Source: https://docs.python.org/3/library/threading.html#thread-objects, on daemon threads.
    """
    deadline = time.monotonic() + GIVEN_UP_LIMIT
    for thread in threads:
        while type(thread) is threading.Thread and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(SHORTEST_LOOK)


def withdraw(session: Session[Any], caller: threading.Thread, interrupted: bool = False) -> None:
    """Let all waiters give up, and wait until they have left the line; what does not leave by itself is taken out.

    Args:
        session: of the connection.
        caller: the thread that closes; it is not waited for.
        interrupted: True if a call of the caller goes on when this is done.
    """
    deadline = time.monotonic() + WITHDRAW_LIMIT
    pause = SHORTEST_LOOK
    at_work = _at_work(caller)
    while others_go(session, at_work) and time.monotonic() <= deadline:
        time.sleep(pause)
        pause = min(LONGEST_LOOK, pause * 2)
    for id, each in list(session.entering.items()):
        # A call that the caller itself interrupts, of a thread that is no more, or that hangs.
        if not interrupted or owner_of(each) is not caller:
            session.entering.pop(id, None)
        try:
            run(session.store.leave(claim_of(each)))
        except LockError as error:
            log.warn(STAYS_IN_LINE, error)


def _release(
    session: Session[Any], entries: Sequence[Entry[Any]], give_up_at_once: bool = False
) -> BaseException | None:
    """Release each, the last one first, whatever happens to the others; return the first failure."""
    failure: BaseException | None = None
    for entry in reversed(entries):
        try:
            if entry.grant is not None:
                entry.grant.release()
            else:
                run(session.store.leave(entry.claim))
            session.watchdog.forget(entry)
        except BaseException as error:
            failure = failure or error
            if give_up_at_once:
                break
    return failure


def _until_left(session: Session[Any], caller: threading.Thread) -> None:
    """Wait for those who began to release before it could be done for them: the store is not closed under them."""
    deadline = time.monotonic() + WITHDRAW_LIMIT
    at_work = _at_work(caller)
    while others_leave(session, at_work) and time.monotonic() < deadline:
        time.sleep(SHORTEST_LOOK)


def _at_work(caller: threading.Thread) -> AtWork:
    return lambda owner: owner is not None and owner is not caller and owner.is_alive()


def _may_work(entry: Entry[Any]) -> bool:
    """Tell whether the thread that acquired it may still rely on it."""
    if entry.grant is not None and entry.grant.abandoned():
        return False
    owner = entry.owner
    return (
        owner is not None
        and owner is not threading.current_thread()
        and owner.is_alive()
        and owner.ident in sys._current_frames()  # greenlets, and foreign threads that ended, are not
    )


def _interrupts_one_of_our_calls(session: Session[Any]) -> bool:
    """Tell whether a signal handler or a finalizer calls, in the middle of a call of this library."""
    calls = {run.__code__, Grant.release.__code__, Session.acquire.__code__}
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code in calls:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _at_exit() -> None:
    for session in open_sessions:
        if session.closing.acquire(blocking=False):
            session.closed = True
            try:
                at_exit(session)
            except Exception as error:
                log.warn("could not close at exit: %s", error)


atexit.register(_at_exit)
