"""A session with MariaDB: its connection, and its blocking requests."""

import socket
from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]

from interlock.runtime._threads import readable
from interlock.stores.advisory.session import IO_TIMEOUT, KEPT_ALIVE, BaseSession, Rows, refusal
from interlock.stores.mysql.lines import set_read_timeout, socket_of
from interlock.stores.mysql.options import arguments_in, dialled, usual


class MariaSession(BaseSession):
    """A session with MariaDB."""

    def connect(self) -> None:
        self.client = dialled(
            arguments_in(urlsplit(self.options.conninfo)) | usual(IO_TIMEOUT), "MariaDB", self.options.torn
        )
        connection = socket_of(self.client)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self.connected(connection.fileno())
        self.pid = self.client.thread_id()

    def perform(self, text: str, seconds: float | None) -> Rows:
        """Perform a statement, and return the rows; blocks.

        Args:
            text: the statement; the caller has called `begin`.
            seconds: to wait for the reply; None for no limit.
        """
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
        return not self.alive or bool(
            readable(self.fd, (), 0.0)
        )  # an idle server sends nothing until it ends the session

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # the number may soon belong to another file
            if self.client.open:
                self.client.close()
