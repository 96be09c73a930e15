"""What both colours of `Locks` share: names, spec, and the arguments that people give."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, overload

from interlock.core.claims import (
    MAX_LABEL,
    SEPARATOR,
    UNSET,
    USING,
    WRITER_UNITS,
    ClaimView,
    LockSpec,
    Unset,
    checked_at_least,
    checked_count,
    checked_name,
    checked_text,
    checked_timeout,
    checked_ttl,
    said,
)
from interlock.core.errors import InvalidArgument
from interlock.core.store import Store
from interlock.locks import events
from interlock.locks.session import AcquireOptions, BaseSession, name_of

L = TypeVar("L")


_DEFAULTS = AcquireOptions()


def options_of(
    timeout: float | None, renew: bool, on_lost: Callable[[Any], object] | None, at_least: float
) -> AcquireOptions:
    """Check the arguments that say how to acquire; `at_least` was checked with the ttl."""
    if timeout is None and renew is True and on_lost is None and not at_least:
        return _DEFAULTS
    if on_lost is not None and not callable(on_lost):
        raise InvalidArgument(f"on_lost is a function of one argument, the grant, not {said(on_lost)}")
    if not isinstance(renew, bool):
        raise InvalidArgument(f"renew is True or False, not {said(renew)}")
    return AcquireOptions(checked_timeout(True, timeout), renew, on_lost, at_least)


def wait_limit(options: AcquireOptions, blocking: bool, timeout: float | None | Unset) -> float | None:
    """Return how many seconds an acquire may wait: 0 for one try, None for no limit."""
    if blocking is True and timeout is UNSET:
        return options.timeout
    if isinstance(timeout, Unset):
        checked_timeout(blocking, None)
        return options.timeout if blocking else 0.0
    return checked_timeout(blocking, timeout)


class BaseLocks(Generic[L]):
    """The part of `Locks` and `AsyncLocks` that makes locks; `_make` gives them their colour.

    Args:
        session: what they share.
    """

    def __init__(self, session: BaseSession[Any]) -> None:
        self._session = session

    def __reduce__(self) -> tuple[Any, ...]:
        return self._session.connect_again()

    def __repr__(self) -> str:
        return repr(self._session)

    @property
    def store(self) -> Store:
        """The store, for those who extend this library."""
        store: Store = self._session.store
        return store

    @property
    def namespace(self) -> str:
        """What separates these locks from those of other applications on the store."""
        return self._session.namespace

    def subscribe(self, function: events.Listener) -> Callable[[], None]:
        """Let `function` be called with each event of this connection, as soon as it happens and where it happens.

        That is in the thread or task that acquires or releases, and in threads of its own (of tasks: on the loop) for
        what the renewal of leases finds.  What it raises is logged and holds back nobody.

        Args:
            function: takes an `Event`; it must be quick, and acquire or release nothing by this connection.

        Returns:
            What ends that; safe to repeat.

        Raises:
            InvalidArgument: it can't be called.
        """
        return events.listen(self._session.listeners, function)

    def _key(self, name: str) -> str:
        return self._session.namespace + SEPARATOR + checked_name(name)

    def _key_or_all(self, name: str | None) -> str:
        return self._session.namespace + SEPARATOR if name is None else self._key(name)

    def _spec(
        self, name: str, units: int, capacity: int, ttl: float | None, label: str | None, at_least: float = 0.0
    ) -> LockSpec:
        lease = None if ttl is None else checked_ttl(ttl)
        kept = checked_at_least(at_least, lease)
        return LockSpec(
            self._key(name),
            units,
            capacity,
            max(self._session.ttl, kept) if lease is None else lease,
            "" if label is None else checked_text(label, "label", MAX_LABEL),
        )

    def _make(self, spec: LockSpec, options: AcquireOptions) -> L:
        raise TypeError("a colour makes its own locks")  # pragma: no cover

    @overload
    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
        at_least: float = 0.0,
        connection: None = None,
    ) -> L: ...
    @overload
    def lock(self, name: str, *, timeout: float | None = None, connection: object) -> Any: ...
    def lock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
        at_least: float = 0.0,
        connection: Any = None,
    ) -> Any:
        """Return the exclusive lock called `name`; nothing is acquired yet.

        Args:
            name: any non-empty text up to 1,000 characters.
            ttl: seconds of lease; it is renewed while the holder lives.
            timeout: seconds that acquiring waits at most; None for no limit.
            renew: False to let the lease end after `ttl`.
            label: free text, shown to people who look at the line.
            on_lost: called with the grant if the lease is lost.
            at_least: seconds that it is kept at least: a release before that returns at once, and the lock gets free
                when they are over.  For jobs that are shorter than the clocks of several machines differ.  A ttl that
                is left out is at least as long, so that it holds also if the process ends.
            connection: a connection or session of SQLAlchemy: its transaction takes the lock, and its commit or
                rollback releases it; on postgresql+advisory:// only, and with no other argument than `timeout`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        if connection is not None:
            options = options_of(timeout, renew, on_lost, at_least)
            return self._in_transaction(name, options, ttl, label, connection)
        return self._make(self._spec(name, 1, 1, ttl, label, at_least), options_of(timeout, renew, on_lost, at_least))

    def _in_transaction(
        self, name: str, options: AcquireOptions, ttl: float | None, label: str | None, connection: object
    ) -> Any:
        make = self._session.ready().lock_in_transaction
        if make is None:
            raise InvalidArgument(
                f"{self._session.where} has no locks that a transaction of yours can hold: connect to "
                f"postgresql+advisory://, or take the lock before the transaction and release it after"
            )
        if options != AcquireOptions(options.timeout) or ttl is not None or label is not None:
            raise InvalidArgument("a lock that a transaction holds has no lease and no label: give only a timeout")
        return make(self._spec(name, 1, 1, None, None), options.timeout, connection)

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        units: int = 1,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
        at_least: float = 0.0,
    ) -> L:
        """Return the semaphore called `name`, which admits holders of `permits` units together.

        Args:
            permits: how many there are.
            units: how many this holder takes at a time.
            name, ttl, timeout, renew, label, on_lost, at_least: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        checked_count(permits, "permits")
        if checked_count(units, "units") > permits:
            raise InvalidArgument(f"{units} units of {permits} permits can never be had; ask for fewer")
        spec = self._spec(name, units, permits, ttl, label, at_least)
        return self._make(spec, options_of(timeout, renew, on_lost, at_least))

    def rwlock(
        self,
        name: str,
        *,
        ttl: float | None = None,
        timeout: float | None = None,
        renew: bool = True,
        label: str | None = None,
        on_lost: Callable[[Any], object] | None = None,
        at_least: float = 0.0,
    ) -> "ReadWrite[L]":
        """Return the reader/writer lock called `name`: `.read()` shares, `.write()` excludes.

        Args:
            name, ttl, timeout, renew, label, on_lost, at_least: as for `lock`.

        Raises:
            InvalidArgument: an argument is out of its range.
        """
        reader = self._spec(name, 1, WRITER_UNITS, ttl, label, at_least)
        writer = self._spec(name, WRITER_UNITS, WRITER_UNITS, ttl, label, at_least)
        options = options_of(timeout, renew, on_lost, at_least)
        return ReadWrite(self, reader, writer, options)


class ReadWrite(Generic[L]):
    """A reader/writer lock, in first come, first served order: no writer starves, no reader barges."""

    __slots__ = ("_locks", "_options", "_reader", "_writer")

    def __init__(self, locks: BaseLocks[L], reader: LockSpec, writer: LockSpec, options: AcquireOptions) -> None:
        self._locks = locks
        self._reader = reader
        self._writer = writer
        self._options = options

    def read(self) -> L:
        """Return the lock that readers share."""
        return self._locks._make(self._reader, self._options)

    def write(self) -> L:
        """Return the lock that one writer has for itself."""
        return self._locks._make(self._writer, self._options)

    def __repr__(self) -> str:
        return f"<ReadWrite {name_of(self._reader.key)!r} of {self._locks!r}>"


OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
"""What a guarded function does while somebody else holds its lock."""


def guard_timeout(on_busy: object, timeout: float | None) -> float | None:
    """Return how long a guarded function waits at most: one that does not wait tries once, unless it is told."""
    if on_busy not in ("wait", "raise", "skip"):
        raise InvalidArgument(f"on_busy is 'wait', 'raise' or 'skip', not {said(on_busy)}")
    return 0 if timeout is None and on_busy != "wait" else timeout


class Part(Protocol):
    """What `in_global_order` needs of a lock."""

    _spec: LockSpec
    _session: Any


A = TypeVar("A", bound=Part)


def in_global_order(session: object, parts: Sequence[A]) -> list[A]:
    """Return `parts` in the one order in which everybody takes several locks.

    Raises:
        InvalidArgument: nothing to lock, a name twice, or a lock of another connection.
    """
    if not parts:
        raise InvalidArgument("all() needs at least one name")
    if any(part._session is not session for part in parts):
        raise InvalidArgument("all() takes locks of its own connection only: there is one order per store")
    keys = [part._spec.key for part in parts]
    for key in keys:
        if keys.count(key) > 1:
            raise InvalidArgument(
                f"all() got the name {name_of(key)!r} twice: it would wait for itself; give it once"
            )
    return sorted(parts, key=lambda part: part._spec.key)


def is_used(views: Sequence[ClaimView]) -> bool:
    """Tell whether anybody in the line holds the lock."""
    return any(view.state == USING for view in views)
