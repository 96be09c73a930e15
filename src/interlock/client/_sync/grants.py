# Generated from _async/grants.py by tools/unasync.py; change that one.
"""Grants: the handles returned by acquire()."""

from types import TracebackType
from typing import Any, Self

from interlock.client.arguments import AcquireOptions
from interlock.client.base_grant import BaseGrant, BaseGrants, ReentryCount
from interlock.client.events import GLOBAL_LISTENERS
from interlock.client.lease import HELD, RELEASED
from interlock.client.messages import CONNECTION_CLOSED, EXPIRED_OR_EVICTED, LEASE_ENDED
from interlock.core._sync.protocols import Queue
from interlock.core.claims import WRITER_UNITS, thread_of
from interlock.core.errors import InvalidArgument, NotHeld, StoreError, Unsupported
from interlock.core.line import RENEWAL_WANTED
from interlock.runtime import _threads as rt
from interlock.runtime import log
from interlock.runtime.process import checked_pid

RECORD_RETRY_PAUSE = 0.2  # seconds until a failed record of a completed run is retried


class _AsyncBody:
    """`with grant:`, whose end releases it."""

    __slots__ = ()

    def __enter__(self) -> Self:
        """Enter the body.

        Raises:
            LockLost, NotHeld: the lock is not held, or the grant is already in a `with`, which will release it.
        """
        grant: Any = self
        grant.check()
        if grant._body is not None:
            raise NotHeld(f"{grant!r} is already in a `with`, which will release it. Use that `with`.")
        grant._enter_body(rt.caller())
        return self

    def __exit__(
        self: Any, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release, and report a loss; an exception of the body takes precedence."""
        struck = self._leave_body(kind)
        try:
            released = self.release()
        except StoreError as problem:
            if error is None:
                raise
            error.add_note(f"The lock could not be released either; its lease will expire: {problem}")
            log.warn("Could not release a lock after its body failed: %s", problem)
            return
        if not released and self.lost and not self.inherited:  # a forked child's parent has the lock
            if error is None or struck:
                raise self._loss() from error
            error.add_note(str(self._loss()))


class Grant(_AsyncBody, BaseGrant):
    """A held lock; release it with `release()`, or by leaving `with grant:`."""

    __slots__ = ("_cancelling", "_struck")

    def _enter_body(self, body: rt.Caller) -> None:
        """Enter the body: a loss now cancels an asynchronous body."""
        self._body = body
    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        """Leave the body; return True if it ends by our own cancellation, now undone."""
        body, self._body = self._body, None
        return False

    def _act_on_loss(self, why: str) -> None:
        """Cancel the body, withdraw the claim if its lease is longer than `at_most`, and call `on_lost`."""
        if self._deadline >= self._ends_at and why is not CONNECTION_CLOSED:  # the lease in the store is longer
            rt.start_background("interlock-at-most", self._watchdog.leave, self._claim)
        if self._options.on_lost is not None:
            rt.run_detached("interlock-on-lost", self._context, self._options.on_lost, self)

    def _note_wanted(self, wanted: bool) -> None:
        """Note whether another claim waits; call `on_wanted` when the wait begins."""
        begins = wanted and not self._wanted
        self._wanted = wanted
        if begins and self._options.on_wanted is not None:
            rt.run_detached("interlock-on-wanted", self._context, self._options.on_wanted, self)

    def detach(self) -> str:
        """Keep the claim for a full lease, but stop holding and renewing it here.

        Returns:
            A token for `attach` in any thread, process or host that reaches the store.  Every program that has the
            token can use the lock, so do not log it.

        Raises:
            LockLost, NotHeld: the lock is not held.
            StoreError: the store could not be asked; Unsupported: the store does not support detached locks.
        """
        # Imported here because it loads json; before the id changes, so that a failed import leaves the lock held.
        from interlock.client.tokens import written

        client = self._client
        client.need("detach")
        self.check()
        watchdog = self._watchdog
        # A detached claim is no instance's: it belongs to every program that has the token.
        claim = self._claim._replace(id=rt.fresh_id(), who=thread_of(self._claim.who))
        watchdog.watched.pop(self.id, None)  # from here on the old id is not renewed
        try:
            held = client.adopt(client.state(), self.id, claim, True)
        except BaseException:
            watchdog.add(self)
            raise
        if held is None:
            watchdog.add(self)
            watchdog.lost(self, EXPIRED_OR_EVICTED)
            raise self._loss()
        self._state = RELEASED
        self._emit("released", "detached")
        return written(client.where, claim, self.fence)

    def downgrade(self) -> None:
        """Turn the grant of a writer into a reader's without releasing it; renews the lease.

        Readers that wait directly behind it get the lock immediately, up to the next waiting writer.  The id and the
        fence stay.  A reader stays a reader; there is no way back.

        Raises:
            InvalidArgument: it is not a grant of `rwlock`.
            LockLost, NotHeld: the lock is not held.
            StoreError: the store could not be asked.  From now on treat the grant as a reader's; call again to let
                the waiting readers in.
            Unsupported: the store does not support this.
        """
        client, spec = self._client, self._claim.spec
        if spec.capacity != WRITER_UNITS:
            raise InvalidArgument(
                f"Lock {self.name!r} is not a reader/writer lock. Only a grant of locks.rwlock(name).write() can be "
                "downgraded."
            )
        client.need("downgrade")
        self.check()
        self._claim = self._claim._replace(spec=spec._replace(units=1))  # also if no reply comes
        sent = client.now()
        if client.state().queue.adopt(spec.key, self.id, self._claim) is None:
            self._watchdog.lost(self, EXPIRED_OR_EVICTED)
            self.check()
        else:
            self._renewed(sent)

    def release(self) -> bool:
        """Release the lock and hand it to the next claim; before `at_least`, do so later.

        Returns:
            True if this call released it; False if it was released or lost before.

        Raises:
            StoreError: the store could not be asked; call again. The lease is no longer renewed, and expires.
        """
        client = self._client
        if self._state == RELEASED or self._watchdog.pid != checked_pid():
            return False
        state, watchdog = client.state(), self._watchdog
        watched = False
        cancelled: BaseException | None = None
        try:
            if self._free_at and self._free_at > client.now() and self.held and self._stays():
                return True
            # Before the watchdog forgets the claim, so that `close` finds it.
            state.leaving[self.id] = self._claim, self._owner
            watched = watchdog.watched.pop(self.id, None) is not None
            if client.now() >= self._deadline:
                self._lose(LEASE_ENDED)
            again, self._leaving = self._leaving, True
            try:
                removed = state.queue.leave(self._claim, *self._record)
                if self._record and not removed:  # an earlier request without a reply may have made the record
                    removed = state.queue.run_result(self._claim.spec.key) == self._record[1]
            except rt.CANCELLED as error:
                cancelled, removed = error, self._leave_to_the_end(state.queue, error)
        except BaseException as error:
            if isinstance(error, StoreError) and self._state != HELD:
                if watched:
                    self._tell_end()
                return False  # the store notices the end of the lease itself
            # Do not renew any more, so that the lock is free when the lease expires.
            self._renews = False
            self._due = self._deadline
            watchdog.add(self)
            raise
        finally:
            state.leaving.pop(self.id, None)
        released = self._state == HELD and (removed or (again and not self._record))
        if released:
            self._state = RELEASED
            if client.listeners or GLOBAL_LISTENERS:
                self._emit("released")
        else:
            if self._state == HELD:
                self._leaving = False
                self._lose("the store no longer had its claim at the release")
            if watched:
                self._tell_end()
        if cancelled is not None:
            raise cancelled
        return released

    def _leave_to_the_end(self, queue: Queue, cancelled: BaseException) -> bool:
        """Finish a cancelled release: it may have been performed already."""
        try:
            rt.finish(queue.leave, self._claim, *self._record)
        except StoreError as error:
            raise cancelled from error
        except rt.CANCELLED:
            pass
        return True

    def _complete(self, keep: float, value: str) -> bool:
        """Release the lock, and record its completed run in the same step.

        Args:
            keep: seconds for which the record is kept.
            value: a value that is unique to this run, kept with the record.

        Returns:
            False if the lock was lost; then nothing was recorded.

        Raises:
            StoreError: the store could not be asked before the lease expired.
        """
        self._record = keep, value
        failed: StoreError | None = None
        while True:
            try:
                recorded = self.release()
            except StoreError as error:
                if isinstance(error, Unsupported) or self._client.now() + RECORD_RETRY_PAUSE >= self._deadline:
                    raise
                failed = error
            else:
                if recorded or failed is None or self.lost:
                    return recorded
                raise failed  # the lease expired while the store was unavailable
            rt.sleep(RECORD_RETRY_PAUSE)

    def _stays(self) -> bool:
        """Let the watchdog release the claim in time; return False to release it now."""
        if self._deadline < self._free_at and not self.renew():
            return False
        if self._state != HELD:  # another release came first
            return False
        self._watchdog.stay(self._claim, self._free_at)
        self._state = RELEASED
        self._emit("released")
        return True

    def renew(self) -> bool:
        """Extend the lease to a full ttl from now.

        Returns:
            True if it was extended; False if the lock was released or lost.

        Raises:
            StoreError: the store could not be asked; the lease continues until its deadline.
        """
        if not self.held:
            return False
        sent = self._client.now()
        (answer,) = self._client.state().queue.renew((self._claim,))
        if isinstance(answer, StoreError):
            raise answer
        if not answer:
            self._watchdog.lost(self, EXPIRED_OR_EVICTED)
            return False
        self._renewed(sent)
        self._note_wanted(answer == RENEWAL_WANTED)
        self._emit("renewed")
        return True


class Reentry(Grant):
    """One of several handles on the same hold of a re-entrant lock.

    The last released handle ends the hold.  Attributes that a handle lacks, such as the deadline, come from the hold.

    Args:
        grant: the hold.
        hold: counts the handles of the hold.
        options: the options of the re-entered lock.
    """

    __slots__ = ("_grant", "_hold", "_outermost")

    def __init__(self, grant: Grant, hold: ReentryCount, options: AcquireOptions) -> None:
        self._grant, self._hold, self._options = grant, hold, options
        self._state = HELD
        self._leaving = self._outermost = False
        self._body = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grant, name)

    @property
    def _over(self) -> bool:
        return self._state == RELEASED or self._grant._over or (self._leaving and self.lost)

    @property
    def lost(self) -> bool:
        """True if the lease of the hold is lost."""
        return self._state == HELD and self._grant.lost

    @property
    def held(self) -> bool:
        """True until this handle is released or the hold is lost."""
        return self._state == HELD and self._grant.held

    def _stay_at_least(self) -> None:
        if self._options.at_least and not self._grant._free_at:
            self._grant._free_at = self._client.now() + self._options.at_least

    def _enter_body(self, body: rt.Caller) -> None:
        self._body = body
        self._outermost = self._grant._body is None
        if self._outermost:
            self._grant._enter_body(body)

    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        self._body = None
        return self._outermost and self._grant._leave_body(kind)

    def release(self) -> bool:
        """Release this handle; the last one releases the hold.

        Returns and raises like the release of the hold.
        """
        if self._state == RELEASED or self.inherited:
            return False
        self._leaving = self.lost
        if self._leaving:
            return False
        released = not self._hold.drop() or self._grant.release()
        if released:
            self._state = RELEASED
        return released

    def detach(self) -> str:
        """Detach the hold; all of its handles lose it."""
        token = self._grant.detach()
        self._state = RELEASED
        return token

    def renew(self) -> bool:
        """Renew the lease of the hold; return False if the lock was released or lost."""
        return self.held and self._grant.renew()


class Grants(_AsyncBody, BaseGrants[Grant]):
    """Several grants that were acquired together, in the order of acquisition."""

    def _enter_body(self, body: rt.Caller) -> None:
        for grant in self:
            grant._enter_body(body)

    def _leave_body(self, kind: type[BaseException] | None) -> bool:
        return any([grant._leave_body(kind) for grant in self])  # noqa: C419 - every one must leave

    def release(self) -> bool:
        """Release all grants, the last one first; return True if all were still held.

        Raises:
            StoreError: some could not be released; the others are released; call again.
        """
        released = True
        failure: BaseException | None = None
        for grant in reversed(self):
            try:
                released = grant.release() and released
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return released
