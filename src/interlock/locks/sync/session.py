"""What the locks and grants of one connection of threads share: the store, who holds, who enters, who renews."""

import threading
from collections.abc import Callable, Sequence
from threading import Thread
from time import monotonic
from typing import Any, Generic, TypeVar

from interlock.core.acquire import AcquireCall, acquire
from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockError
from interlock.core.oldstore import SyncStore
from interlock.locks.events import Kind
from interlock.locks.grants import RELEASED, BaseGrant
from interlock.locks.owners import Holds
from interlock.locks.session import STAYS_IN_LINE, TRY_LIMIT, AcquireOptions, BaseSession, closed_meanwhile
from interlock.locks.sync.watchdog import Watchdog
from interlock.runtime import log
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.runtime.sync import fresh_id, run

G = TypeVar("G", bound=BaseGrant)


class Session(BaseSession[SyncStore], Generic[G]):
    """The shared state of one connection of threads.

    Args:
        kind, store, namespace, ttl: as for `BaseSession`.
        grant_type: the class of what is acquired.

    Attributes:
        watchdog: renews what is held.
        closing: taken by whoever closes.
    """

    leaving: dict[str, tuple[Thread, Claim]]
    holds: Holds[G]

    def __init__(self, kind: str, store: SyncStore, namespace: str, ttl: float, grant_type: type[G]) -> None:
        super().__init__(kind, store, namespace, ttl)
        self._grant_type: Any = grant_type
        self.start_afresh()
        open_sessions.add(self)

    def start_afresh(self) -> None:
        """Begin with nothing held; also in a forked child."""
        super().start_afresh()
        self.watchdog: Watchdog[G] = Watchdog(self.store, _tell_lost, _tell, self._grant_type.release, self)
        self.store.doubt = self.watchdog.doubt
        self.closing = threading.Lock()
        if self.closed:
            self.closing.acquire()

    def acquire(
        self, spec: LockSpec, options: AcquireOptions, seconds: float | None, who: str, owner: Thread | None
    ) -> G | None:
        """Acquire a lock.

        Args:
            spec: of the lock.
            options: how to acquire it.
            seconds: to wait at most; 0 for one try, None for no limit.
            who: the calling thread, as people see it.
            owner: the calling thread.

        Returns:
            The grant; None if the lock was not obtained.

        Raises:
            StoreError: the store can't be asked, or the connection was closed; nothing is left behind.
        """
        started = monotonic()
        if started > self.look_at_log:
            self.listen_for_log(started)
        claim = Claim(fresh_id(), spec, who)
        entering, id = self.entering, claim[0]
        call = grant = result = None
        # In this order: `close` first sets `closed`, and then looks which calls are entering.
        entering[id] = claim, owner
        if self.closed:
            entering.pop(id, None)
            self.ready()
        try:
            if self.enter_now is not None:
                result = self.enter_now(claim, None, seconds != 0, False)
            if result is not None and result.state == "using" and monotonic() < started + spec.ttl:
                held: tuple[Claim, int, float] = claim, result.fence, started + spec.ttl
            else:
                deadline = None if seconds is None else started + (seconds or TRY_LIMIT)
                call = entering[id] = AcquireCall(claim, started, deadline, seconds != 0, result, owner)
                if self.listeners:
                    call.on_queued = self.queued
                waited = run(acquire(self.store, call))
                if call.queued is not None:
                    self.left_line(call)
                if waited is None:
                    entering.pop(id, None)
                    self.tell("timed out", call.claim, started=started)
                    return None
                held = waited
            grant = self._grant_type(held, options.renew, options.on_lost)
            grant._session = self
            grant._owner = owner
            self.watchdog.add(grant)
            if self.closed:
                raise closed_meanwhile(spec)
            if self.listeners:
                grant._tell_acquired(started)
            try:
                del entering[id]  # no call from here on: an interrupt could lose the grant
            except KeyError:
                raise closed_meanwhile(spec) from None
            return grant  # type: ignore[no-any-return]
        except BaseException as error:
            # KeyboardInterrupt may come at any line: nothing may stay behind.
            if grant is not None:
                self.watchdog.remove(grant)
                grant._state = RELEASED
            try:
                if call is None or call.entered:
                    run(self.store.leave(call.claim if call is not None else claim))
            except LockError as problem:
                if id in entering:  # else whoever closed has done it
                    log.warn(STAYS_IN_LINE, problem)
            finally:
                entering.pop(id, None)
                self.broken_off(call, grant, error)
            raise


def _tell_lost(grant: BaseGrant) -> None:
    if grant._on_lost is not None:
        _beside("interlock-on-lost", _call_on_lost, grant)


def _tell(grants: Sequence[BaseGrant], kind: Kind, reason: str) -> None:
    _beside("interlock-events", _tell_each, grants, kind, reason)


def _tell_each(grants: Sequence[BaseGrant], kind: Kind, reason: str) -> None:
    for grant in grants:
        grant._tell(kind, reason)


def _beside(name: str, function: Callable[..., object], *args: object) -> None:
    """Call the program's function in a thread of its own: nothing that it does holds back the renewals of others."""
    try:
        threading.Thread(target=function, args=args, name=name, daemon=True).start()
    except RuntimeError as error:  # the interpreter is shutting down
        log.warn("no thread could be started to call %s: %s", name.removeprefix("interlock-"), error)


def _call_on_lost(grant: BaseGrant) -> None:
    try:
        if grant._on_lost is not None:
            grant._on_lost(grant)
    except BaseException:
        log.exception("on_lost of %r failed", grant)


open_sessions: WeakRegistry[Session[Any]] = WeakRegistry()


def _after_fork() -> None:
    for session in open_sessions:
        session.start_afresh()


in_forked_child(_after_fork)
