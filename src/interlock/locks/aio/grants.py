"""What a task has in its hand while it holds a lock."""

import asyncio
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.core.errors import LockLost, StoreError
from interlock.locks.blocks import enter, entering, one_for_each_block
from interlock.locks.grants import HELD, LEASE_ENDED, RELEASED, BaseGrant, BaseGrants
from interlock.locks.owners import BaseReentry
from interlock.locks.unreleased import kept
from interlock.runtime.aio import afinish, arun, give_way
from interlock.runtime.process import pid

if TYPE_CHECKING:
    from interlock.locks.aio.watchdog import LoopWatchdog

G = TypeVar("G", bound="AsyncGrant | AsyncGrants")


class Ends(Protocol):
    """What ends with the block of an `async with` statement."""

    async def _end(self, block: list[Any], kind: type[BaseException] | None) -> "tuple[LockLost | None, bool]": ...


async def leave(
    ends: Ends,
    block: list[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Release at the end of an `async with` block what was acquired for it, and tell its loss."""
    lost, struck = await ends._end(block, kind)
    if lost is not None:
        if error is None or struck:
            raise lost from error
        error.add_note(str(lost))


async def enter_alone(grant: G) -> G:
    """Enter `async with grant:`, whose end releases it; as `async with await lock.acquire(timeout=5) as grant:`.

    Raises:
        LockLost, NotHeld: it is not held, or in a `with` already.
    """
    block = entering(grant)
    grant._check_before_block()
    enter(block, grant)
    grant._enter_body()
    return grant


async def end(
    grant: "AsyncGrant | AsyncGrants", block: list[Any], kind: type[BaseException] | None
) -> tuple[LockLost | None, bool]:
    """Release at the end of a body.

    Args:
        grant: what the body held.
        block: as for `leave`.
        kind: the exception that ends it.

    Returns:
        What to raise if it was lost, and whether the exception is our own cancellation.
    """
    struck = grant._leave_body(kind)
    await grant.release()
    return grant._loss_to_raise(), struck


class AsyncGrant(BaseGrant):
    """A held lock; `release()`, from any task of its loop, or the end of `async with grant:` gives it back."""

    __slots__ = ("_body", "_cancelling", "_struck", "_watchdog")

    _session: Any
    _body: asyncio.Task[Any] | None
    _cancelling: int
    _struck: bool
    _watchdog: "LoopWatchdog[AsyncGrant]"

    __aenter__ = enter_alone
    __aexit__ = one_for_each_block(leave)
    _end = end

    def _enter_body(self) -> None:
        """From here to `_leave_body`, a loss cancels the calling task."""
        task = asyncio.current_task()
        self._cancelling = task.cancelling() if task is not None else 0
        self._body = task

    def _strike(self) -> None:
        """Cancel the body: the lock was lost."""
        body = self._body
        if body is None or body.done():
            return
        if body is asyncio.current_task():
            # It finds the loss out itself, and may be about to end: a running task can't take its own cancellation
            # back (before Python 3.13).
            body.get_loop().call_soon(self._strike)
            return
        self._struck = True
        body.cancel(f"the lock {self.name!r} was lost")

    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        """End the body; True if the exception that ends it is our own cancellation, which is taken back."""
        body, self._body = self._body, None
        if not self._struck or body is None:
            return False
        self._struck = False
        return body.uncancel() <= self._cancelling and kind is asyncio.CancelledError

    async def release(self) -> bool:
        """Give the lock back and hand it to the next in line; before `at_least` is over, do that then.

        Returns:
            True if this call released it; False if it was released or lost before.

        Raises:
            StoreError: the store could not be asked; call again. Its lease is renewed no more, and ends.
        """
        if self._state == RELEASED or self._pid != pid():
            return False
        if self._free_at:
            if await self._stays():
                return True
            if self._state == RELEASED:
                return False
        kept.pop(self.id, None)
        watchdog = self._watchdog
        session = self._session
        removed = cancelled = None
        watched = False
        try:
            # Before the watchdog forgets it, or `close` sees it nowhere.
            session.leaving[self.id] = watchdog.loop, self._claim
            watched = watchdog.remove(self)
            if time.monotonic() >= self._deadline:
                self._lose(LEASE_ENDED)
            again, self._leaving = self._leaving, True
            held = self._state == HELD
            if held and session.leave_now is not None:
                removed = session.leave_now(self._claim)
            elif held and session.aleave_now is not None:
                try:
                    answer = session.aleave_now(self._claim)
                    removed = answer if type(answer) is bool else await answer
                except asyncio.CancelledError as error:
                    cancelled, again = error, True  # it was sent: it may have been done
            if removed is None:
                removed, later = await afinish(session.store.leave(self._claim))
                cancelled = cancelled or later
        except BaseException as error:
            if isinstance(error, StoreError) and self._state != HELD:
                if watched:
                    self._tell_end()
                return False  # the store sees by itself that the lease ended
            self._give_up_renewing()
            watchdog.add(self)
            raise
        finally:
            session.leaving.pop(self.id, None)
        released = self._left(bool(removed), again)
        if released:
            if session.listeners:
                self._tell("released")
        elif watched:
            self._tell_end()
        if cancelled is not None:
            raise cancelled
        return released

    async def _stays(self) -> bool:
        """Leave the claim to the watchdog, which releases it in time; False if it is to be released now."""
        if not self.held or time.monotonic() >= self._free_at:
            return False
        try:
            if self._deadline < self._free_at and not await self.renew():
                return False
        except BaseException:
            self._give_up_renewing()  # as any release that failed: its lease ends
            raise
        return self._stays_with(self._watchdog)

    async def renew(self) -> bool:
        """Extend the lease to a full ttl from now.

        Returns:
            True if it was extended; False if the lock was released or lost.

        Raises:
            StoreError: the store could not be asked; the lease goes on until its deadline.
        """
        await give_way()
        if not self.held:
            return False
        sent = time.monotonic()
        (answer,) = await arun(self._session.store.renew((self._claim,)))
        return self._answered(answer, sent, self._watchdog)


class AsyncReentry(BaseReentry, AsyncGrant):
    """One of several handles on the same hold of a re-entrant lock; the last one to be released ends it."""

    __slots__ = ("_grant", "_handles", "_outermost")

    def __init__(self, grant: AsyncGrant) -> None:
        super().__init__(grant)
        self._outermost = False

    def _enter_body(self) -> None:
        if self._grant._body is None:
            self._grant._enter_body()
            self._outermost = True
        else:
            self._outermost = False

    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        return self._outermost and self._grant._leave_body(kind)

    async def release(self) -> bool:
        """Take this handle back; the last one releases the hold.  As `AsyncGrant.release`."""
        if self._ended():
            return False
        released = not self._handles.drop(self) or await self._grant.release()
        if released:
            self._state = RELEASED
        return released

    async def renew(self) -> bool:
        """Extend the lease of the hold.  As `AsyncGrant.renew`."""
        return self.held and await self._grant.renew()


class AsyncGrants(BaseGrants[AsyncGrant]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

    __aenter__ = enter_alone
    __aexit__ = one_for_each_block(leave)
    _end = end

    def _enter_body(self) -> None:
        for grant in self._grants:
            grant._enter_body()

    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        return any([grant._leave_body(kind) for grant in self._grants])  # noqa: C419 - every one must leave

    async def release(self) -> bool:
        """Release all, the last one first; True if every one was still held.

        Raises:
            StoreError: the store could not be asked for some; the others are released; call again.
        """
        return await release_all(self._grants)


async def release_all(grants: Sequence[AsyncGrant]) -> bool:
    """Release each grant, the last one first, whatever happens to the others."""
    released = True
    failure: BaseException | None = None
    for grant in reversed(grants):
        try:
            released = await grant.release() and released
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return released
