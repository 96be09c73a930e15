"""Wake-ups between processes on PostgreSQL: one connection of this process listens while somebody here waits.

Whoever releases tells the next in line by NOTIFY, after the commit and only if there is one. Nobody relies on it: who
waits looks by itself too, less often where this process hears. A listener tells itself something now and then,
so that a deaf one is noticed.
"""

import math
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4
from weakref import WeakSet

from django.db import DatabaseError
from django.db.backends.base.base import NO_DB_ALIAS
from django.db.backends.signals import connection_created
from django.db.utils import InterfaceError

from interlock.core.errors import StoreError
from interlock.django.folding import promoted_in
from interlock.django.waiters import LineWaiters
from interlock.django.wrappers import is_direct, open_wrapper, shut
from interlock.runtime import log
from interlock.runtime.process import in_forked_child

CHANNEL = "interlock_claim"
TELL = f"SELECT pg_notify('{CHANNEL}', %s)"
IDLE = 60.0  # seconds without a waiter, after which the connection is closed
PING = 10.0  # seconds between two messages of a listener to itself
DEAF = 2.0  # seconds within which it must hear them
AGAIN = 5.0  # seconds before a listener that failed is replaced
NEVER = 3600.0  # seconds before it is tried again behind a pooler, where LISTEN means nothing


class _Deaf(Exception):
    """It does not hear what it says."""


class NotificationListener:
    """What one process hears of a database; all stores on it share it.

    Args:
        alias: of the database in DATABASES.
    """

    _known: dict[str, "NotificationListener"] = {}

    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.waiters = LineWaiters.of(alias)
        self._users: WeakSet[Any] = WeakSet()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._mutex = threading.RLock()
        self._thread: threading.Thread | None = None
        self._stop: socket.socket | None = None
        self._wrapper: Any = None
        self._heard = -math.inf
        self._needed = -math.inf
        self._not_before = -math.inf

    @classmethod
    def of(cls, alias: str) -> "NotificationListener":
        """Return the listener of a database."""
        return cls._known.setdefault(alias, cls(alias))

    @property
    def hears(self) -> bool:
        """True if it heard its own voice lately."""
        return time.monotonic() - self._heard < PING + DEAF

    def join(self, user: Any) -> None:
        """Be there for one more store."""
        self._users.add(user)

    def leave(self, user: Any) -> None:
        """Hang up when the last store is closed."""
        self._users.discard(user)
        if not self._users:
            self.hang_up()

    def need(self) -> None:
        """Somebody waits: listen, for a minute at least."""
        now = self._needed = time.monotonic()
        if self._thread is not None or now < self._not_before:
            return
        with self._mutex:
            if self._thread is None and self._users:
                try:
                    ours, theirs = socket.socketpair()
                except OSError:  # no more open files: waiters look by themselves
                    self._not_before = now + AGAIN
                    return
                thread = threading.Thread(target=self._run, args=(theirs,), name="interlock-listener", daemon=True)
                self._thread, self._stop = thread, ours
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down
                    self._ended(theirs, NEVER)

    def hang_up(self) -> None:
        """Close the connection, and wait until it is closed."""
        with self._mutex:
            thread, stop = self._thread, self._stop
            if stop is not None:
                try:
                    stop.send(b"x")
                except OSError:
                    pass  # it is hanging up already
        if thread is not None and thread is not threading.current_thread():
            thread.join(DEAF)

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self, stop: socket.socket) -> None:
        pause = 0.0
        try:
            self._wrapper = open_wrapper(self.alias)
            if is_direct(self._wrapper):
                with self._wrapper.wrap_database_errors:
                    self._listen(self._wrapper.connection, stop)
            else:
                pause = NEVER
        except (DatabaseError, InterfaceError, StoreError, OSError, _Deaf) as error:
            pause = AGAIN
            log.warn(
                "waiters in other processes are not heard of on the database %r, they poll: %s", self.alias, error
            )
        finally:
            wrapper, self._wrapper = self._wrapper, None
            if wrapper is not None:
                shut(wrapper)
            self._ended(stop, pause)

    def _ended(self, stop: socket.socket, pause: float) -> None:
        with self._mutex:
            self._heard = -math.inf
            self._not_before = time.monotonic() + pause
            ours, self._stop, self._thread = self._stop, None, None
            stop.close()
            if ours is not None:
                ours.close()

    def _listen(self, connection: Any, stop: socket.socket) -> None:
        ping, pinged = f"ping {uuid4().hex}", -math.inf
        say, read = (_with_psycopg3 if hasattr(connection, "pgconn") else _with_psycopg2)(connection)
        with connection.cursor() as cursor:
            cursor.execute(f"LISTEN {CHANNEL}")
        with selectors.DefaultSelector() as ready:
            ready.register(connection.fileno(), selectors.EVENT_READ)
            hanging_up = ready.register(stop, selectors.EVENT_READ)
            while time.monotonic() - self._needed < IDLE:
                for said in read():
                    self._hear(said, ping)
                now = time.monotonic()
                if self._heard < pinged:
                    if now - pinged > DEAF:
                        raise _Deaf("what is said there is not heard here")
                elif now - pinged >= PING:
                    pinged = now
                    say(ping)
                waits = DEAF if self._heard < pinged else max(0.0, pinged + PING - now)
                if any(key is hanging_up for key, _ in ready.select(waits)):
                    return

    def _hear(self, said: str, ping: str) -> None:
        if said != ping:
            self.waiters.notify(*promoted_in(said))
            return
        was_deaf = not self.hears
        self._heard = time.monotonic()
        if was_deaf:
            self.waiters.wake_all()  # somebody may have been told before

    def forked(self) -> None:
        """In a forked child: leave the parent's connection alone."""
        _inherited.append((self._wrapper, self._stop))
        self._start_afresh()


Voice = tuple[Callable[[str], None], Callable[[], list[str]]]
"""What says something to all who listen, and what reads the notifications that have come."""


def _with_psycopg3(connection: Any) -> Voice:
    pgconn = connection.pgconn

    def say(what: str) -> None:
        pgconn.send_query(b"NOTIFY %b, '%b'" % (CHANNEL.encode(), what.encode()))  # waits for no answer
        pgconn.flush()

    def read() -> list[str]:
        pgconn.consume_input()
        while not pgconn.is_busy() and pgconn.get_result() is not None:
            pass
        found = []
        while (each := pgconn.notifies()) is not None:
            found.append(each.extra.decode(errors="replace"))
        return found

    return say, read


def _with_psycopg2(connection: Any) -> Voice:
    def say(what: str) -> None:
        # It waits for an answer, however long that takes: a caller that waited enough hangs up from another thread.
        spare = socket.socket(fileno=os.dup(connection.fileno()))
        hanging_up = threading.Timer(DEAF, spare.shutdown, (socket.SHUT_RDWR,))
        hanging_up.daemon = True
        hanging_up.start()
        try:
            with connection.cursor() as cursor:
                cursor.execute(TELL, (what,))
        finally:
            hanging_up.cancel()
            hanging_up.join()
            spare.close()

    def read() -> list[str]:
        connection.poll()
        found = [each.payload for each in connection.notifies]
        connection.notifies.clear()
        return found

    return say, read


_inherited: list[Any] = []
"""Of the parent; to collect a connection would say goodbye to the server on it."""


def _leave_database(connection: Any, **_: object) -> None:
    """Django connects to no database in order to create or drop one, which must not be in use, as that of tests."""
    if connection.alias == NO_DB_ALIAS:
        for each in list(NotificationListener._known.values()):
            each.hang_up()


connection_created.connect(_leave_database, dispatch_uid="interlock-listener")


def _after_fork() -> None:
    for each in NotificationListener._known.values():
        each.forked()


in_forked_child(_after_fork)
