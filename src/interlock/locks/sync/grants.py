"""What a thread has in its hand while it holds a lock."""

from collections.abc import Sequence
from threading import current_thread
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from interlock.core.errors import LockError, LockLost, StoreError
from interlock.locks.blocks import enter, entering, one_for_each_block, somebody
from interlock.locks.grants import HELD, LEASE_ENDED, RELEASED, BaseGrant, BaseGrants
from interlock.locks.owners import BaseReentry
from interlock.locks.unreleased import kept
from interlock.runtime.process import pid
from interlock.runtime.sync import run

if TYPE_CHECKING:
    from interlock.locks.sync.session import Session

G = TypeVar("G", bound="Grant | Grants")


class Ends(Protocol):
    """What ends with the block of a `with` statement."""

    def _end(self, block: list[Any]) -> LockLost | None: ...


def leave(
    ends: Ends,
    block: list[Any],
    kind: type[BaseException] | None,
    error: BaseException | None,
    trace: TracebackType | None,
) -> None:
    """Release at the end of a `with` block what was acquired for it, and tell its loss; the `__exit__` of all."""
    lost = None
    try:
        lost = ends._end(block)
    except LockError:
        raise
    except BaseException:  # an interrupt: nothing may stay behind
        ends._end(block)
        raise
    if lost is not None:
        if error is None:
            raise lost
        error.add_note(str(lost))


def enter_alone(grant: G) -> G:
    """Enter `with grant:`, whose end releases it; as `with lock.acquire(timeout=5) as grant:`.

    Raises:
        LockLost, NotHeld: it is not held, or in a `with` already.
    """
    try:
        block = entering(grant)
        grant._check_before_block()
        enter(block, grant)
        if block is not somebody:
            grant._keep_for_block()
        return grant
    except LockError:
        raise
    except BaseException:  # an interrupt: the block will never be left
        grant.release()
        raise


def end(ends: "Grant | Grants", block: list[Any]) -> LockLost | None:
    """Release at the end of a block; return what to raise if it was lost."""
    return None if ends.release() else ends._loss_to_raise()


class Grant(BaseGrant):
    """A held lock; `release()`, from any thread, or the end of `with grant:` gives it back."""

    __slots__ = ()

    _session: "Session[Any]"

    __enter__ = enter_alone
    __exit__ = one_for_each_block(leave)
    _end = end

    def release(self) -> bool:
        """Give the lock back and hand it to the next in line; before `at_least` is over, do that then.

        Returns:
            True if this call released it; False if it was released or lost before.

        Raises:
            StoreError: the store could not be asked; call again. Its lease is renewed no more, and ends.
        """
        if self._state == RELEASED or self._pid != pid():
            return False
        if self._free_at:
            if self._stays():
                return True
            if self._state == RELEASED:
                return False
        session = self._session
        watchdog = session.watchdog
        kept.pop(self.id, None)
        watched = False
        try:
            # Before the watchdog forgets it, or `close` sees it nowhere.
            session.leaving[self.id] = current_thread(), self._claim
            watched = watchdog.remove(self)
            if monotonic() >= self._deadline:
                self._lose(LEASE_ENDED)
            again, self._leaving = self._leaving, True
            removed = None
            if session.leave_now is not None and self._state == HELD:
                removed = session.leave_now(self._claim)
            if removed is None:
                removed = run(session.store.leave(self._claim))
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
        if self._left(removed, again):
            if session.listeners:
                self._tell("released")
            return True
        if watched:
            self._tell_end()
        return False

    def _stays(self) -> bool:
        """Leave the claim to the watchdog, which releases it in time; False if it is to be released now."""
        if not self.held or monotonic() >= self._free_at:
            return False
        try:
            if self._deadline < self._free_at and not self.renew():
                return False
        except BaseException:
            self._give_up_renewing()  # as any release that failed: its lease ends
            raise
        return self._stays_with(self._session.watchdog)

    def renew(self) -> bool:
        """Extend the lease to a full ttl from now.

        Returns:
            True if it was extended; False if the lock was released or lost.

        Raises:
            StoreError: the store could not be asked; the lease goes on until its deadline.
        """
        if not self.held:
            return False
        sent = monotonic()
        (answer,) = run(self._session.store.renew((self._claim,)))
        return self._answered(answer, sent, self._session.watchdog)


class Reentry(BaseReentry, Grant):
    """One of several handles on the same hold of a re-entrant lock; the last one to be released ends it."""

    __slots__ = ("_grant", "_handles")

    def release(self) -> bool:
        """Take this handle back; the last one releases the hold.  As `Grant.release`."""
        if self._ended():
            return False
        released = not self._handles.drop(self) or self._grant.release()
        if released:
            self._state = RELEASED
        return released

    def renew(self) -> bool:
        """Extend the lease of the hold.  As `Grant.renew`."""
        return self.held and self._grant.renew()

    def _keep_for_block(self) -> None:
        self._grant._keep_for_block()


class Grants(BaseGrants[Grant]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

    __enter__ = enter_alone
    __exit__ = one_for_each_block(leave)
    _end = end

    def release(self) -> bool:
        """Release all, the last one first; True if every one was still held.

        Raises:
            StoreError: the store could not be asked for some; the others are released; call again.
        """
        return release_all(self._grants)


def release_all(grants: Sequence[Grant]) -> bool:
    """Release each grant, the last one first, whatever happens to the others."""
    released = True
    failure: BaseException | None = None
    for grant in reversed(grants):
        try:
            released = grant.release() and released
        except BaseException as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return released
