"""A bounded number of connections, each used by one thread at a time."""

import math
import threading
import weakref
from collections import deque
from collections.abc import Generator
from time import monotonic
from typing import Any

from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.runtime.sync import run
from interlock.stores.sql.problems import Full, Refused, none_free

LOST = 0.5  # seconds until it is looked whether an interrupt took a connection from its thread
GROW = 0.1  # seconds to wait for a connection that is in use, before another one is made
UNUSED = 5.0  # seconds after which a connection is closed where others do the work

Talk = Generator[Any, Any, list[Any]]
"""What to say one after the other on one connection; what it returns is the answer."""


class _ByThen:
    """A connection, as an `effects.Server` of its colour.

    Args:
        connection: which has `exchange`.
        deadline: of the monotonic clock, for all that is said.
        io_timeout: seconds from the first statement until then.
    """

    __slots__ = ("connection", "deadline", "io_timeout")

    def __init__(self, connection: Any, deadline: float, io_timeout: float) -> None:
        self.connection = connection
        self.deadline = deadline
        self.io_timeout = io_timeout

    def ask(self, statement: Any) -> Any:
        """Say a statement, and return the answer; a connection of tasks lets it be awaited."""
        return self.connection.exchange(statement, self.deadline, self.io_timeout)

    aask = ask


def said_on(connection: Any, talk: Talk, deadline: float, io_timeout: float) -> Op[list[Any]]:
    """Say one statement after the other on a connection.

    Args:
        connection: which has `exchange`.
        talk: what is said; it is told of refusals, and of nothing else that fails.
        deadline: of the monotonic clock, for all of it.
        io_timeout: seconds from now until then.

    Returns:
        The answer.
    """
    server = _ByThen(connection, deadline, io_timeout)
    try:
        statement = next(talk)
        while True:
            try:
                rows = yield Ask(server, statement)
            except Refused as error:
                statement = talk.throw(error)
            else:
                statement = talk.send(rows)
    except StopIteration as stop:
        found: list[Any] = stop.value
        return found


class _Loan:
    """A connection in use; it is counted as long as somebody has it.

    Attributes:
        connection: the connection; None while it is to be made.
        generation: of the connections when it was lent.
        sound: True if the connection may be used again.
    """

    __slots__ = ("__weakref__", "connection", "generation", "sound")

    def __init__(self) -> None:
        self.connection: Any = None
        self.generation = 0
        self.sound = False


class BoundedPool:
    """The connections of one store, as an `effects.Server`.

    A connection has `is_open`, `is_sound`, `exchange` and `close`.

    Args:
        factory: what makes them.
    """

    def __init__(self, factory: Any) -> None:
        self.factory = factory
        self._most = factory.options.most
        self._inherited: list[Any] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        # Re-entrant: a signal handler, or the garbage collector, may release a grant.
        self._mutex = threading.RLock()
        self._free = threading.Condition(self._mutex)
        self._idle: deque[Any] = deque()
        self._lent: dict[int, weakref.ref[_Loan]] = {}
        self._generation = 0
        self._closed = False

    def _connect(self, deadline: float) -> Any:
        """Return a new connection."""
        raise NotImplementedError

    def _perform(self, connection: Any, statement: Any) -> Talk:
        """Return what to say on a connection for a statement."""
        raise NotImplementedError

    def ask(self, statement: Any, deadline: float = math.inf) -> list[Any]:
        """Perform a statement as a transaction of its own, and return its rows.

        Args:
            statement: what to perform.
            deadline: of the monotonic clock, where it has waited for a thread; its I/O time-out counts as well.

        Raises:
            StoreError: as `SqlQueue` says.
        """
        io_timeout = min(self.factory.io_timeout, statement.io_timeout or self.factory.io_timeout)
        now = monotonic()
        if now >= deadline:
            raise none_free(self._most, "process", self.factory.where, io_timeout)
        deadline = min(deadline, now + io_timeout)
        place = _Loan()
        try:
            while place.connection is None:
                self._take(place, deadline, io_timeout, self._most + statement.reserved)
                if place.connection is None:
                    self._make(place, deadline)
            talk = self._perform(place.connection, statement)
            rows = run(said_on(place.connection, talk, deadline, io_timeout))
            place.sound = True
        except Refused:
            place.sound = place.connection is not None and place.connection.is_sound()
            raise
        except UnknownOutcome:
            self.drop()  # what broke one has broken the others
            raise
        finally:
            self._give_back(place)
        return rows

    def _take(self, place: "_Loan", deadline: float, io_timeout: float, most: int) -> None:
        """Fill a place with a connection that was idle, or let the caller make one, if less than `most` are used."""
        with self._mutex:
            asked = monotonic()
            while True:
                if self._closed:
                    raise StoreError("this connection was closed: connect again")
                place.generation = self._generation
                used = self._used()
                while used < most and (connection := self._next()) is not None:
                    place.connection = connection
                    if place.connection.is_open():
                        self._lent[id(place)] = weakref.ref(place)
                        return
                    place.connection.close()
                    place.connection = None
                now = monotonic()
                if not used or (used < most and now - asked >= GROW):
                    self._lent[id(place)] = weakref.ref(place)
                    return
                if now >= deadline:
                    raise none_free(self._most, "process", self.factory.where, io_timeout)
                until = deadline if used >= most else min(deadline, asked + GROW)
                self._free.wait(max(0.0005, min(until - now, LOST)))

    def _next(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _make(self, place: "_Loan", deadline: float) -> None:
        """Make the connection of a place; leave it without one if the server has none left, but this process has."""
        try:
            place.connection = self._connect(deadline)
        except Full:
            with self._mutex:
                self._lent.pop(id(place), None)
                self._free.notify()
                if not self._idle and (not self._used() or monotonic() + GROW > deadline):
                    raise

    def _used(self) -> int:
        """Return how many are lent, not counting what an interrupt took from its thread."""
        for key, ref in list(self._lent.items()):
            if ref() is None:
                self._lent.pop(key, None)
        return len(self._lent)

    def _give_back(self, place: "_Loan") -> None:
        with self._mutex:
            self._lent.pop(id(place), None)
            connection, place.connection = place.connection, None
            keep = place.sound and not self._closed and place.generation == self._generation
            over = [] if connection is None else put_back(self._idle, connection) if keep else [connection]
            self._free.notify()
        for each in over:
            each.close()

    def drop(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._mutex:
            self._generation += 1
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        with self._mutex:
            old = _taken(self._idle, list(self._idle)[:-1])
        for connection in old:
            connection.close()

    def close(self) -> None:
        """Close all; what is in use is closed when it comes back."""
        with self._mutex:
            self._closed = True
            self._free.notify_all()
        self.drop()

    def reset(self) -> None:
        """In a forked child: leave the parent's connections alone; libpq would say goodbye on them."""
        self._inherited += self._idle
        self._start_afresh()


def put_back(idle: Any, connection: Any) -> list[Any]:
    """Add a connection to the idle ones; return those to be closed, which it and others have left without work."""
    connection.used_at = now = monotonic()
    idle.append(connection)
    return _taken(idle, [each for each in list(idle) if each.used_at < now - UNUSED])


def _taken(idle: Any, some: list[Any]) -> list[Any]:
    """Take some connections out of the idle ones; return those that no signal handler has taken meanwhile."""
    taken = []
    for each in some:
        try:
            idle.remove(each)
        except ValueError:
            continue
        taken.append(each)
    return taken
