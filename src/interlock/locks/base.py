"""What both colours of `Locks` share: names, spec, and the locks that are made of them."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, overload

from interlock.core.claims import (
    MAX_LABEL,
    SEPARATOR,
    WRITER_UNITS,
    LockSpec,
    checked_at_least,
    checked_count,
    checked_name,
    checked_text,
    checked_ttl,
)
from interlock.core.errors import InvalidArgument
from interlock.core.oldstore import Store
from interlock.locks import events
from interlock.locks.arguments import guard_timeout, in_global_order, options_of
from interlock.locks.session import AcquireOptions, BaseSession, name_of

L = TypeVar("L")


class BaseLocks(Generic[L]):
    """The part of `Locks` and `AsyncLocks` that makes locks, of the classes that a colour names.

    Args:
        session: what they share.
    """

    _lock_type: Any
    _all_type: Any

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
        made: L = self._lock_type(self._session, spec, options)
        return made

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

    def _all(self, parts: "tuple[str | L, ...]", timeout: float | None) -> Any:
        locks: list[Any] = [
            part if isinstance(part, self._lock_type) else self.lock(cast(str, part)) for part in parts
        ]
        at_least = max((part._options.at_least for part in locks), default=0.0)
        ordered = in_global_order(self._session, locks)
        return self._all_type(self._session, ordered, options_of(timeout, True, None, at_least))

    def _lock_of_guard(self, name: str, on_busy: object, timeout: float | None, **how: Any) -> Callable[[str], L]:
        """Return what makes the lock that a call of a guarded function takes, after it has judged the arguments."""
        seconds = guard_timeout(on_busy, timeout)

        def lock_of(name: str) -> L:
            made: L = self.lock(name, timeout=seconds, **how)
            return made

        lock_of(name)
        return lock_of


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
