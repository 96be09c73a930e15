"""Connections of the store's own: in autocommit, to the primary, never the one of a request."""

import math
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic, sleep
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from django.db import DatabaseError
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.db.utils import InterfaceError

from interlock.core.claims import checked_count
from interlock.core.errors import StoreError
from interlock.django.failures import NoConnection, NotReached, is_definite, translated
from interlock.django.wrappers import ANSWER, connect, database_name, hang_up, make_wrapper, shut
from interlock.runtime.process import in_forked_child, pid


class ConnectionSlot:
    """One of the connections that a process may have; `wrapper` is None until it is opened.

    An interrupt may lose one on its way; then it is collected, and counts no more.
    """

    __slots__ = ("__weakref__", "due", "generation", "name", "pid", "since", "thread", "wrapper")

    def __init__(self) -> None:
        self.wrapper: Any = None
        self.pid = pid()
        self.name = ""
        self.generation = 0
        self.since = 0.0
        self.thread = 0
        self.due = math.inf

    def begin(self) -> None:
        """Something is asked now; the answer must come in time."""
        self.due = monotonic() + ANSWER

    def close(self) -> None:
        """Close the connection, if there is one."""
        wrapper, self.wrapper = self.wrapper, None
        if wrapper is not None:
            shut(wrapper)

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            if self.pid == pid():
                self.close()


MOST = 4  # connections of a process to one database, unless MAX_CONNECTIONS says otherwise
IDLE = 60.0  # seconds after which a connection that nobody uses is closed
STALE = 20.0  # seconds; older ones are asked first whether they still live
WAIT_LIMIT = 5.0  # seconds that a statement waits for a connection if its caller has no time-out
LOST = 0.5  # seconds after which a waiter looks by itself whether a connection was lost
LOOK = 1.0  # seconds between two looks for an answer that is overdue
PAUSE = 0.05  # seconds before a server that has too many connections is asked for another


class Connections:
    """The private connections of this process to one database; all stores on it share them.

    A statement takes one and gives it back, so threads that come and go leave nothing open.  A transaction of the
    program can't hide what is written through them, nor take it back.

    Args:
        alias: of the database in DATABASES.
    """

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self._users: WeakKeyDictionary[Pool, int] = WeakKeyDictionary()
        self._most = MOST
        self._vendor = make_wrapper(alias).vendor
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._mutex = threading.RLock()  # a signal handler may close what the main thread is just using
        self._free = threading.Condition(self._mutex)
        self._idle: deque[ConnectionSlot] = deque()
        self._lent: WeakSet[ConnectionSlot] = WeakSet()
        self._generation = 0  # a connection of an earlier generation is not used again
        self._timer: threading.Timer | None = None
        self._watcher: threading.Thread | None = None
        self._silent = -math.inf  # until then a server that did not answer is not asked again

    @contextmanager
    def lend(self, wait_limit: float) -> Iterator[Any]:
        """Lend a connection for one statement.

        Args:
            wait_limit: seconds to wait for one that is free.
        """
        sound = False
        slot = self._take(monotonic() + wait_limit)
        try:
            yield slot.wrapper
            sound = True
        except (DatabaseError, InterfaceError) as error:
            if not is_definite(error, slot.wrapper):
                self.drop()  # what broke one has broken the others
            raise translated(error, slot.wrapper) from error
        finally:  # after an interrupt the answer may still be on its way
            self._give_back(slot, sound)

    def drop(self) -> None:
        """Close what is idle, and what is in use when it comes back."""
        with self._mutex:
            self._generation += 1
            idle, self._idle = self._idle, deque()
        for slot in idle:
            slot.close()

    def _take(self, until: float) -> ConnectionSlot:
        """Return a connection: one that is idle, or a new one, or one that is given back before `until`."""
        while True:
            slot = self._enter(until)
            try:
                if slot.wrapper is None or slot.name != database_name(self.alias) or not self._lives(slot):
                    self._open(slot)
                slot.begin()
                return slot
            except NoConnection:  # the server has too many: wait for one of ours, or for others to leave
                self._give_back(slot, False)
                left = until - monotonic()
                if left <= 0:
                    raise
                with self._mutex:
                    if not self._idle:
                        self._free.wait(min(PAUSE, left))
            except BaseException:
                self._give_back(slot, False)
                raise

    def _open(self, slot: ConnectionSlot) -> None:
        """Connect; whoever comes right after one to whom nobody answered does not wait as long as that one did."""
        slot.close()
        began = monotonic()
        if began < self._silent:
            raise NotReached(f"the database {self.alias!r} can't be reached: it just did not answer")
        slot.begin()
        slot.generation, slot.name = self._generation, database_name(self.alias)
        slot.wrapper = make_wrapper(self.alias)
        try:
            connect(slot.wrapper)
        except NoConnection:
            raise
        except NotReached:
            ended = monotonic()
            if ended - began > LOOK:
                self._silent = ended + LOOK
            raise

    def _enter(self, until: float) -> ConnectionSlot:
        with self._mutex:
            while not self._has_one():
                left = until - monotonic()
                if left <= 0:
                    raise NoConnection(self._why_none())
                self._free.wait(min(left, LOST))
            self._watch()
            slot = self._idle.pop() if self._idle else ConnectionSlot()
            slot.thread = threading.get_ident()
            slot.begin()
            self._lent.add(slot)
            return slot

    def _has_one(self) -> bool:
        if self._vendor == "sqlite":
            # Threads that write to one file queue up here, where the next runs at once, and not in SQLite.  A signal
            # handler does not wait for the thread that it has interrupted.
            return all(slot.thread == threading.get_ident() for slot in self._lent)
        return bool(self._idle) or len(self._lent) < self._most

    def _why_none(self) -> str:
        if self._vendor == "sqlite":
            return f"another thread of this process has been using the database {self.alias!r} for long: try again"
        return (
            f"all {self._most} connections of this process to the database {self.alias!r} are in use: allow "
            f"more by OPTIONS: {{'MAX_CONNECTIONS': {2 * self._most}}} in INTERLOCK, or try again"
        )

    def _lives(self, slot: ConnectionSlot) -> bool:
        if monotonic() - slot.since < STALE or slot.wrapper.is_usable():
            return True
        self.drop()  # what broke one has broken the others
        return False

    def _give_back(self, slot: ConnectionSlot, sound: bool) -> None:
        with self._mutex:
            self._lent.discard(slot)
            keep = sound and len(self._users) > 0 and slot.generation == self._generation
            if keep:
                slot.since = monotonic()
                self._idle.append(slot)
            self._free.notify()
        if keep and self._timer is None:
            self._close_later(IDLE)
        elif not keep:
            slot.close()

    # -- answers that do not come -----------------------------------------------------------------------

    def _watch(self) -> None:
        """See that nobody waits for ever for PostgreSQL, whose drivers know no limit, as those of others do."""
        if self._watcher is None and self._vendor == "postgresql":
            thread = threading.Thread(target=self._hang_up_overdue, name="interlock-overdue", daemon=True)
            self._watcher = thread
            try:
                thread.start()
            except RuntimeError:  # the interpreter is shutting down
                self._watcher = None

    def _hang_up_overdue(self) -> None:
        while True:
            sleep(LOOK)
            with self._mutex:
                for slot in list(self._lent):
                    if slot.due < monotonic():
                        hang_up(slot.wrapper)
                if not self._lent and not self._idle:
                    self._watcher = None
                    return

    # -- idle connections -------------------------------------------------------------------------------

    def _close_later(self, seconds: float) -> None:
        timer = threading.Timer(seconds, self._close_old)
        timer.name, timer.daemon = "idle-connections", True
        self._timer = timer
        try:
            timer.start()
        except RuntimeError:  # the interpreter is shutting down
            self._timer = None

    def _close_old(self) -> None:
        old = []
        with self._mutex:
            self._timer = None
            now = monotonic()
            while self._idle and now - self._idle[0].since >= IDLE:
                old.append(self._idle.popleft())
            left = IDLE - (now - self._idle[0].since) if self._idle else None
        for slot in old:
            slot.close()
        if left is not None:
            self._close_later(left)

    # -- who uses them ----------------------------------------------------------------------------------

    def join(self, pool: "Pool", most: int) -> None:
        """Serve one more pool, which wants that many connections at most."""
        with self._mutex:
            self._users[pool] = most
            self._most = max(self._users.values())

    def leave(self, pool: "Pool") -> None:
        """Close all when the last pool is closed."""
        with self._mutex:
            self._users.pop(pool, None)
            self._most = max(self._users.values(), default=MOST)
            last = not self._users
            timer = self._timer if last else None
            self._timer = None if last else self._timer
        if timer is not None:
            timer.cancel()
        if last:
            self.drop()

    def forked(self) -> None:
        """In a forked child: leave the parent's connections alone."""
        _inherited.extend((*self._idle, *self._lent))
        self._start_afresh()


class Pool:
    """What one store uses of the connections to a database.

    Args:
        alias: of the database in DATABASES.
        most: connections of this process to it; where several stores say so, the highest number counts.
    """

    def __init__(self, alias: str, most: int = MOST) -> None:
        self._closed = False
        self._connections = _known.setdefault(alias, Connections(alias))
        self._connections.join(self, checked_count(most, "MAX_CONNECTIONS"))

    @contextmanager
    def connection(self, wait_limit: float = WAIT_LIMIT) -> Iterator[Any]:
        """Lend a connection for one statement.

        Args:
            wait_limit: seconds to wait for one that is free.

        Raises:
            UnknownOutcome: the connection broke while the statement was on its way.
            NotReached: nobody answers there, nothing was sent; `NoConnection` if all connections are in use.
            StoreError: the statement was refused, and nothing was done.
        """
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        with self._connections.lend(wait_limit) as wrapper:
            yield wrapper

    def close(self) -> None:
        """Close what is idle if no other store uses it; what is in use is closed when it comes back."""
        self._closed = True
        self._connections.leave(self)


_known: dict[str, Connections] = {}
_inherited: list[Any] = []
"""Connections of the parent; to collect them would say goodbye to the server on the parent's connection."""


def _leave_database(connection: Any, **_: object) -> None:
    """Django connects to no database in order to create or drop one, which must not be in use, as that of tests."""
    if connection.alias == NO_DB_ALIAS:
        for each in list(_known.values()):
            each.drop()


connection_created.connect(_leave_database, dispatch_uid="interlock")


def _after_fork() -> None:
    for each in _known.values():
        each.forked()


in_forked_child(_after_fork)
