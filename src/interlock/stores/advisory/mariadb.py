"""A session with MariaDB: its connection, and its blocking requests."""

import socket
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pymysql  # type: ignore[import-untyped]

from interlock.core.redaction import UNTOLD
from interlock.remote.failures import Unreachable
from interlock.runtime._threads import ready
from interlock.stores.advisory.session import IO_TIMEOUT, KEPT_ALIVE, BaseSession, Refusal, Rows
from interlock.stores.mysql.lines import set_read_timeout
from interlock.stores.mysql.options import FAILURES, arguments_in, failed


def dialled(url: SplitResult, torn: bool) -> tuple[Any, int]:
    """Return a connection of PyMySQL, and the descriptor of its socket.

    Raises:
        StoreError: the server can't be reached, or refuses the log-in.
    """
    try:
        how = arguments_in(url)
        client = pymysql.connect(
            **how, read_timeout=IO_TIMEOUT, write_timeout=IO_TIMEOUT, autocommit=True, defer_connect=True
        )
        connection = socket.create_connection((how["host"], how["port"]), IO_TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        number = connection.fileno()  # TLS takes the socket over, and keeps its number
        client.connect(connection)
        return client, number
    except FAILURES as error:
        if not torn:
            raise failed(error, "MariaDB") from error
    # Outside of the except clause: the text of the chained error could show a part of the password.
    raise Unreachable(f"MariaDB can't be reached; {UNTOLD}")


class MariaSession(BaseSession):
    """A session with MariaDB.

    Attributes:
        client: the connection of PyMySQL.
    """

    client: Any
    _cursor: Any

    def connect(self) -> None:
        self.client, fd = dialled(urlsplit(self.options.conninfo), self.options.torn)
        self.connected(fd)
        self._cursor = self.client.cursor()
        self.reported_pid = self.client.thread_id()

    def perform(self, text: str, seconds: float | None) -> Rows:
        """Perform a statement, and return the rows; blocks.

        Args:
            text: the statement; the caller has called `begin`.
            seconds: to wait for the reply; None for no limit.
        """
        try:
            set_read_timeout(self.client, seconds)
            self._cursor.execute(text)
            rows = self._cursor.fetchall()
            return [tuple(None if value is None else str(value) for value in row) for row in rows]
        except (pymysql.MySQLError, OSError) as error:
            number = error.args[0] if error.args else 0
            if isinstance(error, pymysql.MySQLError) and self.client.open and not 2000 <= number < 3000:
                raise Refusal(str(number), str(error)) from error
            self.silent = isinstance(error.__context__, TimeoutError)
            raise self.broken(error) from error
        except BaseException:
            self.alive = False  # an interrupt may have left half a packet unread
            raise
        finally:
            self.over()

    def has_ended(self) -> bool:
        self.see_that_it_is_ours()
        return not self.alive or ready(self.fd, 0)  # an idle server sends nothing until it ends the session

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # the number may soon belong to another file
            if self.client.open:
                self.client.close()
