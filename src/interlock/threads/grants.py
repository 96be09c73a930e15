"""What a thread has in its hand while it holds a lock."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from interlock.engine import run
from interlock.errors import LockLost, StoreError
from interlock.grants import HELD, LEASE_ENDED, RELEASED, BaseGrant, BaseGrants, Hold
from interlock.process import pid

if TYPE_CHECKING:
    from interlock.threads.connection import Locks


class Grant(BaseGrant):
    """A held lock; `release()` gives it back, from any thread."""

    __slots__ = ("_locks",)

    _locks: "Locks"

    def release(self) -> bool:
        """Give the lock back and hand it to the next in line.

        Returns:
            True if this call released it; False if it was released or lost before.

        Raises:
            StoreError: the store could not be asked; call again. Its lease is renewed no more, and ends.
        """
        if self._state == RELEASED or self._pid != pid():
            return False
        watchdog = self._locks._watchdog
        watchdog.remove(self)
        if time.monotonic() >= self._deadline:
            self._lose(LEASE_ENDED)
        again, self._leaving = self._leaving, True
        leave_now = self._locks._leave_now if self._state == HELD else None
        removed = None
        try:
            if leave_now is not None:
                removed = leave_now(self._claim)
            if removed is None:
                removed = run(self._locks._store.leave(self._claim))
        except BaseException as error:
            if isinstance(error, StoreError) and self._state != HELD:
                return False  # the store sees by itself that the lease ended
            self._give_up_renewing()
            watchdog.add(self)
            raise
        return self._left(removed, again)

    def renew(self) -> bool:
        """Extend the lease to a full ttl from now.

        Returns:
            True if it was extended; False if the lock was released or lost.

        Raises:
            StoreError: the store could not be asked; the lease goes on until its deadline.
        """
        if not self.held:
            return False
        sent = time.monotonic()
        if run(self._locks._store.renew((self._claim,)))[0]:
            self._renewed(sent)
            return True
        self._locks._watchdog.lost(self)
        return False


class Reentry(Grant):
    """One of several handles on the same hold of a re-entrant lock; the last one to be released ends it."""

    __slots__ = ("_hold",)

    def __init__(self, hold: Hold[Grant]) -> None:
        grant = hold.grant
        self._hold = hold
        self._claim, self._pid, self.id, self.fence = grant._claim, grant._pid, grant.id, grant.fence
        self._state = HELD
        hold.entries.append(self)

    @property
    def lost(self) -> bool:
        """True once the lease of the hold is lost."""
        return self in self._hold.entries and self._hold.grant.lost

    @property
    def held(self) -> bool:
        """True while neither this handle was released nor the hold lost."""
        return self in self._hold.entries and self._hold.grant.held

    @property
    def expires_in(self) -> float:
        """Seconds until the lease of the hold ends unless it is renewed."""
        return self._hold.grant.expires_in if self.held else 0.0

    def release(self) -> bool:
        """Take this handle back; the last one releases the hold.  As `Grant.release`."""
        if self.inherited or self not in self._hold.entries or self.lost:
            return False
        if not self._hold.drop(self):
            self._state = RELEASED
            return True
        released = self._hold.grant.release()
        if released:
            self._state = RELEASED
            self._hold.end()
        return released

    def renew(self) -> bool:
        """Extend the lease of the hold.  As `Grant.renew`."""
        return self.held and self._hold.grant.renew()

    def _loss(self) -> LockLost:
        return self._hold.grant._loss()

    def __repr__(self) -> str:
        return f"<Reentry into {self._hold.grant!r}>"


class Grants(BaseGrants[Grant]):
    """Several grants that were taken together, as a sequence in the order in which they were taken."""

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
