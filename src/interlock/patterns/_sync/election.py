# Generated from _async/election.py by tools/unasync.py; change that one.
"""Leader election: one candidate leads at a time."""

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, TypeAlias

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client.arguments import AcquireOptions
from interlock.client.cancel import Cancel
from interlock.core.claims import LockSpec, name_of
from interlock.core.errors import InvalidArgument, LockError
from interlock.core.functions import check_kind
from interlock.runtime import _threads as rt
from interlock.runtime import clock, log

STEP_DOWN = 2.0  # seconds for which a leader retries its release; then its lease expires
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds until a candidate retries after an error
POLL_INTERVAL = 1.0  # seconds; a safety net, because each change is notified
STOP = 30.0  # seconds that `stop` waits for the work
Told: TypeAlias = Callable[["Election"], object]


class Election(rt.WrongWith):
    """A candidate of an election; returned by `Locks.election`.

    `with` makes it a candidate in the background; `run` calls a function each time that it is elected.
    A stopped candidate cannot be restarted: create another candidate.
    """

    def __init__(
        self,
        client: Client,
        spec: LockSpec,
        options: AcquireOptions,
        on_elected: Told | None,
        on_deposed: Told | None,
    ) -> None:
        self._client = client
        self._spec = spec
        self._options = options._replace(on_lost=lambda grant: self._wake_waiters())
        self._on_elected = on_elected
        self._on_deposed = on_deposed
        self._cancel = Cancel()
        self._grant: Grant | None = None
        self._term = 0
        self._campaigner: Any = None  # the thread of the candidate; None if it is not running
        self._watching: list[Any] = []
        self._context = Context()  # of the callbacks

    @property
    def name(self) -> str:
        """The name of the election."""
        return name_of(self._spec.key)

    @property
    def leading(self) -> bool:
        """True while this candidate leads, by its own clock: False at the end of the lease."""
        grant = self._grant
        return grant is not None and grant.held and not self._cancel.is_set()

    @property
    def term(self) -> int:
        """The fence of this candidate's latest term, rising with each leader; 0 before."""
        return self._term

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until this candidate leads; return False after a time-out or a stop.

        Args:
            timeout: maximum wait in seconds; None for no limit.
        """
        self._until(lambda: self.leading or self._cancel.is_set(), timeout)
        return self.leading

    def run(self, work: "Callable[[Election], rt.Result[object]]") -> None:
        """Run as a candidate until stopped; call `work(election)` at each election.

        A coroutine is cancelled when the candidate is deposed; a function checks `election.leading`.  When the work
        returns or raises (which is logged), the candidate steps down, and retries after a pause of 1 to 30 seconds.

        Args:
            work: the work of the leader.

        Raises:
            InvalidArgument: the work is of the wrong kind, or this candidate is already running.
        """
        check_kind(work, rt.WRAPPED_KIND)
        self._begin()
        rt.finish_within(0.0, self._campaign, work)

    def stop(self, timeout: float | None = STOP) -> bool:
        """Stop the candidate: let the work end, and step down; safe to repeat.

        Args:
            timeout: maximum wait for the end of the work in seconds; None for no limit.

        Returns:
            True if the work has ended; also, without waiting, for a call from the work or a signal handler above it.
        """
        self._cancel.set()
        stander = self._campaigner
        self._wake_waiters()
        if stander is None or stander == rt.caller():
            return True
        return self._until(lambda: self._campaigner is None, timeout)

    def __enter__(self) -> "Election":
        self._begin()
        rt.start_background("interlock-election", self._campaign, None)
        return self

    def __exit__(self, *_: object) -> None:
        rt.finish(self.stop)

    def _begin(self) -> None:
        """Mark this candidate as running."""
        if self._campaigner is not None:
            raise InvalidArgument(
                f"This candidate of {self.name!r} is already waiting or leading. Create another candidate."
            )
        self._client.check_open()
        if self._on_elected is not None or self._on_deposed is not None:
            self._context = copy_context()
        self._campaigner = "soon"

    def _campaign(self, work: Callable[..., rt.Result[object]] | None) -> None:
        """Wait for election, lead, and repeat."""
        self._campaigner = rt.caller()
        pause = FIRST_PAUSE
        try:
            while not self._cancel.is_set():
                try:
                    self._one_term(work)
                    pause = FIRST_PAUSE
                except BaseException as error:
                    ends = not isinstance(error, Exception)
                    if ends:
                        if not isinstance(error, (rt.CANCELLED, GeneratorExit)):
                            log.exception(
                                "Election %r ended because its work raised %s.", self.name, type(error).__name__
                            )
                        raise
                    if isinstance(error, LockError):
                        log.warn("The store failed; election %r retries in %g s: %s", self.name, pause, error)
                    else:
                        log.exception("The work of the leader of %r failed; next try in %g s.", self.name, pause)
                    self._until(self._cancel.is_set, pause)
                    pause = min(LONGEST_PAUSE, 2 * pause)
        except rt.CANCELLED:
            if not self._cancel.is_set():
                raise  # otherwise `stop` cancelled it
        finally:
            self._campaigner = None
            self._wake_waiters()

    def _one_term(self, work: Callable[..., rt.Result[object]] | None) -> None:
        """Wait until this candidate leads, and lead."""
        grant = self._client.acquire(self._spec, self._options, None, rt.caller(), self._cancel)
        if grant is None:
            return
        self._grant, self._term = grant, grant.fence
        try:
            self._wake_waiters()
            self._call(self._on_elected)
            if work is None:
                self._until(lambda: not self.leading, None)
            elif self.leading:
                self._do(grant, work)
        finally:
            self._call(self._on_deposed)
            self._grant = None
            rt.finish(self._step_down, grant)
        if work is not None:
            self._until(self._cancel.is_set, FIRST_PAUSE)

    def _do(self, grant: Grant, work: Callable[..., rt.Result[object]]) -> None:
        """Call the work; a loss cancels asynchronous work."""
        grant._enter_body(rt.caller())
        try:
            work(self)
        except BaseException as error:
            if not grant._leave_body(type(error)):
                raise
        else:
            grant._leave_body(None)

    def _step_down(self, grant: Grant) -> None:
        """Release the lock, within 2 seconds."""
        rt.start_background("interlock-step-down", self._release, grant)
        self._until(lambda: grant._over, STEP_DOWN)

    def _release(self, grant: Grant) -> None:
        try:
            grant.release()
        except LockError as error:
            log.warn("The leader of %r could not step down; its lease will expire: %s", self.name, error)
        finally:
            self._wake_waiters()

    def _call(self, function: Told | None) -> None:
        if function is not None:
            try:
                self._context.copy().run(function, self)
            except Exception:
                log.exception("%r failed", function)

    def _wake_waiters(self) -> None:
        for waiter in list(self._watching):
            waiter.wake()

    def _until(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a condition holds; return False after a time-out."""
        deadline = None if timeout is None else clock.now() + timeout
        waiter: rt.Waiter[None] = rt.Waiter()
        self._watching.append(waiter)
        try:
            while not condition():
                left = POLL_INTERVAL if deadline is None else min(POLL_INTERVAL, deadline - clock.now())
                if left <= 0:
                    return False
                waiter.wait(left)
            return True
        finally:
            self._watching.remove(waiter)
            waiter.close()

    def __repr__(self) -> str:
        state = "leads" if self.leading else "stands" if self._campaigner is not None else "does not stand"
        return f"<{type(self).__name__} {self.name!r} {state} on {self._client.where}>"
