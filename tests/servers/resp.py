"""A small client of Redis and Valkey (RESP2), so that the servers need no client library."""

import socket
import ssl
from io import BufferedReader
from pathlib import Path
from typing import Any

from tests.servers.home import Closing


class Refused(Exception):
    """The server answered with an error; the message is the server's."""


class Wire(Closing):
    """One connection to a server.

    Args:
        address: (host, port).
        password: sent first; None for none.
        authority: the certificate of the authority of the server's certificate; None without TLS.
        timeout: seconds to wait for each reply.
    """

    def __init__(
        self,
        address: tuple[str, int],
        password: str | None = None,
        authority: Path | None = None,
        timeout: float = 10.0,
    ) -> None:
        self._socket = socket.create_connection(address, timeout)
        try:
            if authority is not None:
                context = ssl.create_default_context(cafile=str(authority))
                self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
            self._reader: BufferedReader = self._socket.makefile("rb")
            if password is not None:
                self.ask("AUTH", password)
        except BaseException:
            self.close()
            raise

    def ask(self, *words: object) -> Any:
        """Send one command; return the reply: `str`, `int`, None or a list of them, bytes if they are no UTF-8.

        Raises:
            Refused: the server answered with an error.
            OSError: the connection failed.
        """
        self._socket.sendall(packed(words))
        return self.read()

    def read(self) -> Any:
        """Read the next reply or message, as `ask` does."""
        reply = self._reply()
        if isinstance(reply, Refused):
            raise reply
        return reply

    def _reply(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Refused(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        size = int(rest)
        if size < 0:
            return None
        if kind == b"*":
            return [self._reply() for _ in range(size)]
        body = self._reader.read(size + 2)
        if len(body) < size + 2:
            raise ConnectionResetError("the server closed the connection")
        try:
            return body[:-2].decode()
        except UnicodeDecodeError:
            return body[:-2]

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "_reader"):
            self._reader.close()
        self._socket.close()


def packed(words: tuple[object, ...]) -> bytes:
    """Encode a command."""
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)
