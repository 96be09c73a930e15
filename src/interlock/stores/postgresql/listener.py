"""How waiting threads hear that they were promoted: one connection listens, and one thread reads it."""

import threading
from time import monotonic
from typing import Any

from psycopg import OperationalError

from interlock.core.errors import StoreError
from interlock.runtime.polling import READABLE, WakePipe, poller
from interlock.stores.postgresql.exchange import ask_itself, ended, messages_on
from interlock.stores.postgresql.pool import Connection
from interlock.stores.postgresql.sessions import POOLED, RETRY, SILENCE, WHOSE, is_pooled, listening
from interlock.stores.sql.waiters import Waiters

IDLE = 60.0  # seconds without a waiter, after which the connection is closed
GOODBYE = 1.0


class ThreadListener:
    """The listener of one store, for threads; nobody is refused anything if it is deaf: then waiters look often.

    Args:
        factory: what makes the connection.
    """

    def __init__(self, factory: Any) -> None:
        self._factory = factory
        self._inherited: list[Any] = []
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.live = False
        self._choosing = threading.RLock()
        self._connection: Connection | None = None
        self._thread: threading.Thread | None = None
        self._retry_at = 0.0
        self._closed = False
        self._subscribed = False
        self._doubts = False
        self._pipe: WakePipe | None = None
        self._waking = threading.RLock()  # a pipe that is written to is not closed meanwhile

    def start(self, channel: str, waiters: Waiters) -> None:
        """As `Listener.start`."""
        self._channel = channel
        self._waiters = waiters

    def ask(self, _: Any) -> None:
        """Listen, unless that is done already or was tried a moment ago."""
        with self._choosing:
            if self.live or self._closed or monotonic() < self._retry_at:
                return
            # Nobody else opens one meanwhile, nor for ever if an interrupt comes before the end.
            self._retry_at = monotonic() + RETRY + 3 * self._factory.io_timeout
        after = RETRY
        try:
            after = self._listen()
        except StoreError:
            pass  # whoever waits asks the store soon, and is told there
        finally:
            self._retry_at = monotonic() + after

    def _listen(self) -> float:
        """Listen; return the seconds until the next attempt, if this one fails or ends."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(GOODBYE)  # it is about to end
        connection = Connection(self._factory.dial(), self._factory.where)
        try:
            io_timeout = self._factory.io_timeout
            until = monotonic() + io_timeout
            if is_pooled(connection.exchange(WHOSE, until, io_timeout), connection.pgconn.backend_pid):
                connection.close()
                return POOLED
            connection.exchange(listening(self._channel), until, io_timeout)
            pipe = WakePipe()
        except BaseException:
            connection.close()
            raise
        try:
            self._connection, self._pipe, self.live = connection, pipe, True
            thread = threading.Thread(
                target=self._read, args=(connection, pipe), name="interlock-listens", daemon=True
            )
            thread.start()
            self._thread = thread
        except BaseException as error:
            self._ended(pipe)  # the thread, if it did start, sees that and closes what it reads
            if not isinstance(error, RuntimeError):
                raise
            connection.close()  # no thread can be started: waiters look by themselves
            pipe.close()
            return RETRY
        if self._subscribed:
            self._waiters.wake_all()  # what was said meanwhile was not heard
        self._subscribed = True
        return RETRY

    def _ended(self, pipe: WakePipe) -> None:
        """Note that the thread that `pipe` wakes does not listen any more, unless that is known."""
        with self._waking:
            if self._pipe is pipe:
                self.live = False
                self._connection = self._pipe = None

    def _read(self, connection: Connection, pipe: WakePipe) -> None:
        """Read until the connection ends, is not needed for a while, or does not hear any more."""
        try:
            self._read_on(connection, pipe)
        except (OperationalError, OSError):
            pass
        finally:
            self._ended(pipe)
            connection.close()
            with self._waking:
                pipe.close()
            self._waiters.wake_all()

    def _read_on(self, connection: Connection, pipe: WakePipe) -> None:
        poll = poller()
        poll.register(pipe.fileno(), READABLE)
        poll.register(connection.pgconn.socket, READABLE)
        heard_at = needed_at = monotonic()
        asked_at = 0.0
        while not self._closed and self._pipe is pipe:
            for message in messages_on(connection.pgconn):
                self._waiters.notify_message(message)
                heard_at, asked_at = monotonic(), 0.0
            now = monotonic()
            if self._waiters:
                needed_at = now
            elif now - needed_at >= IDLE:
                return
            if asked_at and now - asked_at >= self._factory.io_timeout:
                return  # deaf
            if not asked_at and (self._doubts or (self._waiters and now - heard_at >= SILENCE)):
                asked_at, self._doubts = now, False
                ask_itself(connection.pgconn, self._channel)
            next_at = asked_at + self._factory.io_timeout if asked_at else now + SILENCE / 2
            if (pipe.fileno(), READABLE) in poll.poll(max(1.0, (next_at - now) * 1000)):
                pipe.drain()
            connection.pgconn.consume_input()
            if ended(connection.pgconn):
                return

    def _wake(self) -> None:
        with self._waking:
            if self._pipe is not None:
                self._pipe.wake()

    def suspect(self) -> None:
        """As `Listener.suspect`."""
        self._doubts = True
        self._wake()

    def close(self) -> None:
        """As `Listener.close`."""
        self._closed = True
        self.live = False
        self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(GOODBYE)

    def reset(self) -> None:
        """In a forked child: leave the parent's connection alone."""
        self._inherited.append(self._connection)
        if self._pipe is not None:
            self._pipe.close()
        self._start_afresh()
