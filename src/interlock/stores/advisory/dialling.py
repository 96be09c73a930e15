"""How PyMySQL is connected for locks: on a socket of our own, which is watched and kept alive."""

import socket
from typing import Any
from urllib.parse import SplitResult

import pymysql  # type: ignore[import-untyped]

from interlock.core.redaction import UNTOLD
from interlock.remote.failures import Unreachable
from interlock.stores.advisory.session import IO_TIMEOUT, KEPT_ALIVE
from interlock.stores.mysql.dialling import FAILURES, arguments_in, failed


def dialled(url: SplitResult, torn: bool) -> tuple[Any, int]:
    """Return a connection of PyMySQL, and the descriptor of its socket.

    Raises:
        StoreError: the server can't be reached, or does not let us in.
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
    # Not while the error is handled: its own text may show a part of the password.
    raise Unreachable(f"MariaDB can't be reached; {UNTOLD}")


def set_read_timeout(client: Any, seconds: float | None) -> None:
    """Let a connection wait for an answer for so long; PyMySQL says it once for all, and we both ask and wait."""
    client._read_timeout = seconds
