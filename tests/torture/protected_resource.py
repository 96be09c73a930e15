"""The shelf, the resource that the locks protect: two counters for each name; one of them checks fences.

The coordinator serves it, which no fault stops, and records each write in the history in the order of the writes. A
holder reads a counter and writes it one higher: two holders at a time lose updates. A read of the fenced counter
sends the fence too, so that a stale holder can't write after a later holder has read.
"""

import socket
import socketserver
import threading
from collections import defaultdict
from typing import Any

from tests.support.closing import Closing
from tests.torture.history import History

LOCALHOST = "127.0.0.1"


class Shelf(Closing):
    """The counters, served on the loopback interface; use it as a context manager.

    Args:
        history: the history for the records of writes.

    Attributes:
        port: the port at which it listens.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._mutex = threading.Lock()
        self._value: dict[tuple[str, str], int] = defaultdict(int)
        self._writes: dict[tuple[str, str], int] = defaultdict(int)
        self._fence: dict[str, int] = defaultdict(int)
        shelf = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                for line in self.rfile:
                    if not line.endswith(b"\n"):
                        return  # the process was killed in the middle of a request
                    self.wfile.write(b"%d\n" % shelf.do(*line.decode().split()))

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                pass  # clients are killed by faults

        self._server = Server((LOCALHOST, 0), Handler)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def do(self, verb: str, counter: str, name: str, fence: str, value: str) -> int:
        """Perform one request; return the value read, or whether it was written; -1 for a stale fence."""
        with self._mutex:
            number = int(fence)
            if counter == "fenced":
                if number < self._fence[name]:
                    if verb == "write":
                        self._note(name, counter, number, False)
                    return -1
                self._fence[name] = number
            if verb == "read":
                return self._value[name, counter]
            self._value[name, counter] = int(value)
            self._writes[name, counter] += 1
            self._note(name, counter, number, True)
            return 1

    def _note(self, name: str, counter: str, fence: int, accepted: bool) -> None:
        self._history.write("write", name=name, counter=counter, fence=fence, accepted=accepted)

    def counters(self) -> list[dict[str, Any]]:
        """Return each counter with its value and its number of writes."""
        with self._mutex:
            return [
                {"name": name, "counter": counter, "value": self._value[name, counter], "writes": writes}
                for (name, counter), writes in self._writes.items()
            ]

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


class Reader:
    """A connection of one thread to the shelf.

    Args:
        port: the port of the shelf.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((LOCALHOST, port))

    def read(self, counter: str, name: str, fence: int) -> int:
        """Return the value; -1 if the fence is stale."""
        return self._ask("read", counter, name, fence, 0)

    def write(self, counter: str, name: str, fence: int, value: int) -> bool:
        """Write a value; False if the fence is stale."""
        return self._ask("write", counter, name, fence, value) > 0

    def _ask(self, verb: str, counter: str, name: str, fence: int, value: int) -> int:
        self._socket.sendall(f"{verb} {counter} {name} {fence} {value}\n".encode())
        reply = b""
        while not reply.endswith(b"\n"):
            part = self._socket.recv(32)
            if not part:
                raise SystemExit("the shelf is closed: the run is over")
            reply += part
        return int(reply)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
