"""A session with MariaDB: connection, set-up, and blocking requests."""

import socket

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.core.failures import Refused
from interlock.runtime._threads import readable
from interlock.stores.advisory import statements
from interlock.stores.advisory.session import KEPT_ALIVE, BaseSession, Rows, refusal
from interlock.stores.mysql.lines import set_read_timeout, socket_of
from interlock.stores.mysql.options import dialled

LEAP = 1_000_000  # fences
LOST_ROW = "1032"  # error of a sequence without its row: the server crashed before the row was on disk


class MariaSession(BaseSession):
    """A session with MariaDB."""

    words = statements.MARIA

    def connect(self) -> None:
        self.client = dialled(dict(self.options.arguments), "MariaDB", self.options.password_may_leak)
        connection = socket_of(self.client)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.connected(connection.fileno())
        self.pid = self.client.thread_id()
        problem = statements.refused_version(self.client.get_server_info())
        if not problem:
            ((pid, read_only, wsrep),) = self.say(self.text("first"))
            problem = statements.refused_server(read_only, wsrep) if pid == str(self.pid) else statements.POOLED
        if problem:
            raise StoreError(problem)
        self.say(self.text("settings"))
        self.say(self.text("writes"))
        try:
            self._leap()
        except Refused as error:
            if error.code == LOST_ROW:
                self.say(self.text("drop"))  # IF EXISTS: another process may repair it at the same time
            ((clock,),) = self.say(self.text("now"))
            self.make_sequence(clock)
            self._leap()

    def _leap(self) -> None:
        """Set the sequence beyond all numbers that it issued before a crash of the server.

        The sequence may have lost these: the server issues a number before it is on disk.  No session survives a
        crash, so every session that takes a number after it has run this method.  The sequence is set to the server's
        clock in microseconds, because numbers are issued more slowly than that; SETVAL never sets it back.  If the
        clock was set back, by more than `LEAP` behind the sequence, then the sequence leaps by `LEAP`: more than it
        can issue in a second.
        """
        sequence, ((clock,),) = self.options.sequence, self.say(self.text("now"))
        if self.say(f"SELECT SETVAL({sequence}, {clock})") == [(None,)]:
            ((ahead,),) = self.say(self.text("fence"))
            if int(str(ahead)) - int(str(clock)) > LEAP:  # otherwise another session has just set it
                self.say(f"SELECT SETVAL({sequence}, {int(str(ahead)) + LEAP})")

    def perform(self, text: str, seconds: float | None) -> Rows:
        try:
            set_read_timeout(self.client, seconds)
            cursor = self.client.cursor()
            cursor.execute(text)
            return [tuple(None if value is None else str(value) for value in row) for row in cursor.fetchall()]
        except (pymysql.MySQLError, OSError) as error:
            number = error.args[0] if error.args else 0
            if isinstance(error, pymysql.MySQLError) and self.client.open and not 2000 <= number < 3000:
                raise refusal(str(number), str(error)) from error
            self.silent = isinstance(error.__context__, TimeoutError)
            raise self.broken(error) from error
        except BaseException:
            self.alive = False  # an interrupt may have left half a packet unread
            raise
        finally:
            self.over()

    def has_ended(self) -> bool:
        self.see_that_it_is_ours()
        # An idle server sends nothing until it ends the session.
        return not self.alive or bool(readable(self.fd, (), 0.0))
