"""A private server for these tests, and an HTTP server in front of it."""

import json
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from tests.servers import need
from tests.servers.dynamo import DynaliteServer
from tests.servers.home import Closing

Answer: TypeAlias = tuple[int, Mapping[str, object]]
"""The status and the body of a reply."""
Instead: TypeAlias = Callable[[Mapping[str, Any], Callable[[], Answer]], Answer]
"""A function of a request, and of another function that forwards it, that returns the reply."""


def refusal(code: str, message: str = "by order of the test", **more: object) -> Answer:
    """Return a reply of DynamoDB that refuses a request."""
    return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message, **more}


class Front(Closing):
    """An HTTP server before a DynamoDB that counts requests and can reply itself; use it as a context manager.

    Args:
        server: the address of the DynamoDB.

    Attributes:
        requests: the number of requests by operation.
        bodies: the last request of each operation.
        instead: replies itself, by operation, until removed.
    """

    def __init__(self, server: DynaliteServer) -> None:
        self.requests: Counter[str] = Counter()
        self.bodies: dict[str, Mapping[str, Any]] = {}
        self.instead: dict[str, Instead] = {}
        self._to = f"http://{server.host}:{server.port}"
        front = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                """Print nothing."""

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status, reply = front._reply(dict(self.headers), body)
                text = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def _reply(self, headers: Mapping[str, str], body: bytes) -> Answer:
        operation, request = headers["X-Amz-Target"].partition(".")[2], json.loads(body)
        self.requests[operation] += 1
        self.bodies[operation] = request

        def forward() -> Answer:
            try:
                with urllib.request.urlopen(urllib.request.Request(self._to, body, headers)) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                return error.code, json.load(error)

        instead = self.instead.get(operation)
        return instead(request, forward) if instead is not None else forward()

    def at(self, table: str) -> str:
        """Return the URL of a table behind this server."""
        return f"dynamodb://key:secret@{table}?endpoint=http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture(scope="session")
def server() -> Iterator[DynaliteServer]:
    """A shared server, which tests must not break."""
    need("dynalite")
    with DynaliteServer() as started:
        yield started


@pytest.fixture
def table(server: DynaliteServer) -> str:
    """The name of an empty table."""
    name = uuid4().hex
    server.create(name)
    return name


@pytest.fixture
def url(server: DynaliteServer, table: str) -> str:
    """The URL of an empty table."""
    return server.at(table)


@pytest.fixture
def front(server: DynaliteServer) -> Iterator[Front]:
    """An HTTP server before the server."""
    with Front(server) as started:
        yield started
