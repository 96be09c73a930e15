"""Statements on a database, for threads: a bounded number of connections, each used by one thread at a time."""

import os
import threading
import weakref
from collections import deque
from time import monotonic
from typing import Any

from psycopg import OperationalError

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.runtime.polling import READABLE, WRITABLE, poller
from interlock.stores.postgresql.exchange import Row, broken, encoded, ended, no_answer, parameters, rows_of
from interlock.stores.postgresql.sessions import Manners, Talk, checked
from interlock.stores.sql.problems import Passing, Refused
from interlock.stores.sql.statements import Statement

LATEST = 1.0  # seconds that an interrupt waits for its step to come to its end
LOST = 0.5  # seconds until it is looked whether an interrupt took a connection from its thread
GROW = 0.1  # seconds to wait for a connection that is in use, before another one is made


class Connection:
    """One connection.

    Args:
        connection: of psycopg.
        where: to what database, without a password.
    """

    def __init__(self, connection: Any, where: str) -> None:
        self.pgconn = connection.pgconn
        self._pid = os.getpid()  # from here on it is closed when nobody has it any more
        self.connection = connection
        self.where = where
        checked(self.pgconn, where)
        self.pgconn.nonblocking = 1
        self.poll = poller()
        self.poll.register(self.pgconn.socket, READABLE)
        self._writing = poller()
        self._writing.register(self.pgconn.socket, READABLE | WRITABLE)

    def is_open(self) -> bool:
        """Tell whether an idle connection is still there, as far as this side knows."""
        try:
            if self.poll.poll(0):
                self.pgconn.consume_input()
        except OperationalError:
            return False
        return not ended(self.pgconn)

    def exchange(self, statement: Statement, deadline: float, io_timeout: float) -> list[Row]:
        """Perform a statement, and return its rows.

        Raises:
            Refused: the database did nothing.
            UnknownOutcome: the connection ended, or there was no answer in time.
        """
        pgconn = self.pgconn
        try:
            if statement.values:
                pgconn.send_query_params(encoded(statement.words), parameters(statement.values))
            else:
                pgconn.send_query(encoded(statement.words))
            while pgconn.flush():
                self._ready(self._writing, deadline, io_timeout)
                pgconn.consume_input()
            results: list[Any] = []
            while True:
                while pgconn.is_busy():
                    self._ready(self.poll, deadline, io_timeout)
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    return rows_of(results, pgconn, self.where)
                results.append(result)
        except OperationalError as error:
            raise broken(self.where, error) from error
        except StoreError:
            raise
        except BaseException:
            self._await_end(min(deadline, monotonic() + LATEST))
            raise

    def _await_end(self, deadline: float) -> None:
        """After an interrupt, let the step come to its end: what takes the claim out again must come after it."""
        try:
            while True:
                while self.pgconn.is_busy():
                    self._ready(self.poll, deadline, 0)
                    self.pgconn.consume_input()
                if self.pgconn.get_result() is None:
                    return
        except (OperationalError, StoreError):
            pass  # whoever leaves is told

    def _ready(self, poll: Any, deadline: float, io_timeout: float) -> None:
        left = deadline - monotonic()
        if left <= 0 or not poll.poll(left * 1000 + 0.5):
            raise no_answer(self.where, io_timeout)

    def close(self) -> None:
        """Close it; in a forked child, leave the parent's alone, on which libpq would say goodbye."""
        if getattr(self, "_pid", None) == os.getpid():
            try:
                self.pgconn.finish()
            except Exception:
                pass  # it is gone, which is what was wanted

    def __del__(self) -> None:
        """Close what an interrupt took from its thread."""
        self.close()


class _Place:
    """A connection in use; it is counted as long as somebody has it.

    Attributes:
        connection: the connection; None while it is to be made.
        age: of the connections when it was lent.
        sound: True if the connection may be used again.
    """

    __slots__ = ("__weakref__", "age", "connection", "sound")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.age = 0
        self.sound = False


class Pool:
    """The connections of one store, as an `effects.Server`.

    Args:
        factory: what makes them.
    """

    def __init__(self, factory: Any) -> None:
        self.factory = factory
        self._most = factory.options.most
        self._manners = Manners(factory.options, factory.where)
        self._inherited: list[Any] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        # Re-entrant: a signal handler, or the garbage collector, may release a grant.
        self._mutex = threading.RLock()
        self._free = threading.Condition(self._mutex)
        self._idle: deque[Connection] = deque()
        self._lent: dict[int, weakref.ref[_Place]] = {}
        self._age = 0
        self._closed = False

    def ask(self, statement: Statement) -> list[Row]:
        """Perform a statement as a transaction of its own, and return its rows.

        Raises:
            StoreError: as `SqlQueue` says.
        """
        io_timeout = min(self.factory.io_timeout, statement.io_timeout or self.factory.io_timeout)
        deadline = monotonic() + io_timeout
        place = _Place()
        try:
            self._take(place, deadline, io_timeout)
            if place.connection is None:
                place.connection = Connection(self.factory.dial(), self.factory.where)
            rows = _talk(place.connection, self._manners.perform(statement), deadline, io_timeout)
            place.sound = True
        except Refused:
            place.sound = place.connection is not None
            raise
        except UnknownOutcome:
            self.drop()  # what broke one has broken the others
            raise
        finally:
            self._give_back(place)
        return rows

    def _take(self, place: "_Place", deadline: float, io_timeout: float) -> None:
        """Fill a place with a connection that was idle, or let the caller make one."""
        with self._mutex:
            asked = monotonic()
            while True:
                if self._closed:
                    raise StoreError("this connection was closed: connect again")
                place.age = self._age
                used = self._used()
                while self._idle:
                    place.connection = self._idle.pop()
                    if place.connection.is_open():
                        self._lent[id(place)] = weakref.ref(place)
                        return
                    place.connection.close()
                    place.connection = None
                now = monotonic()
                if not used or (used < self._most and now - asked >= GROW):
                    self._lent[id(place)] = weakref.ref(place)
                    return
                if now >= deadline:
                    raise Passing(
                        f"all {self._most} connections of this process to {self.factory.where} were in use for "
                        f"{io_timeout:g} s: is it overloaded? Else let it have more (?max_connections=)"
                    )
                until = deadline if used >= self._most else min(deadline, asked + GROW)
                self._free.wait(max(0.0005, min(until - now, LOST)))

    def _used(self) -> int:
        """Return how many are lent, not counting what an interrupt took from its thread."""
        for key, ref in list(self._lent.items()):
            if ref() is None:
                self._lent.pop(key, None)
        return len(self._lent)

    def _give_back(self, place: "_Place") -> None:
        with self._mutex:
            self._lent.pop(id(place), None)
            connection, place.connection = place.connection, None
            keep = place.sound and not self._closed and place.age == self._age
            if keep and connection is not None:
                self._idle.append(connection)
            self._free.notify()
        if not keep and connection is not None:
            connection.close()

    def drop(self) -> None:
        """Close what is idle now, and what is in use when it comes back."""
        with self._mutex:
            self._age += 1
            idle, self._idle = self._idle, deque()
        for connection in idle:
            connection.close()

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        with self._mutex:
            old = [self._idle.popleft() for _ in range(len(self._idle) - 1)]
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


def _talk(connection: Connection, talk: Talk, deadline: float, io_timeout: float) -> list[Any]:
    try:
        statement = next(talk)
        while True:
            try:
                rows = connection.exchange(statement, deadline, io_timeout)
            except Refused as error:
                statement = talk.throw(error)
            else:
                statement = talk.send(rows)
    except StopIteration as stop:
        found: list[Any] = stop.value
        return found
