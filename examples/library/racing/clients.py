"""HTTP clients that keep their connections, and a crowd of them that asks at once."""

import json
import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from threading import Barrier
from typing import Any
from urllib.parse import urlencode

TIMEOUT = 60.0
"""Seconds that a client waits for an answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the site.

    Attributes:
        status: of HTTP.
        body: read from JSON.
        seconds: from the request to the last byte.
    """

    status: int
    body: Any
    seconds: float

    @property
    def done(self) -> bool:
        """True if the site did what it was asked for."""
        return self.status in (200, 201)


@dataclass(frozen=True, slots=True)
class Ask:
    """A POST to the API."""

    path: str
    data: dict[str, Any]


class Client:
    """One browser, so to say: a connection that is kept, and the cookies of a session.

    Args:
        address: host and port.
        cookies: as `log_in` returns them.
    """

    def __init__(self, address: str, cookies: dict[str, str]) -> None:
        self._connection = HTTPConnection(address, timeout=TIMEOUT)
        self._headers = {
            "Accept": "application/json",
            "Content-Type": "application/json",
            "Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()),
            "X-CSRFToken": cookies.get("csrftoken", ""),
        }

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def connect(self) -> None:
        """Connect already now, so that a race is not one of connections."""
        self.get("/api/")

    def get(self, path: str) -> Any:
        """Return what the API shows.

        Raises:
            RuntimeError: it does not.
        """
        answer = self._ask("GET", path, None)
        if not answer.done:
            raise RuntimeError(f"GET {path} was answered by {answer.status}: {answer.body}")
        return answer.body

    def post(self, path: str, **data: Any) -> Answer:
        """Ask the API to do something."""
        return self._ask("POST", path, json.dumps(data))

    def _ask(self, method: str, path: str, body: str | None) -> Answer:
        started = time.perf_counter()
        self._connection.request(method, path, body, self._headers)
        response = self._connection.getresponse()
        content = response.read()
        seconds = time.perf_counter() - started
        kind = response.headers.get_content_type()
        return Answer(response.status, json.loads(content) if kind.endswith("json") else None, seconds)


class Crowd:
    """Clients that ask all at once; a context manager.

    Args:
        address, cookies: as for `Client`.
        size: how many there are.
    """

    def __init__(self, address: str, cookies: dict[str, str], size: int) -> None:
        self._clients = [Client(address, cookies) for _ in range(size)]
        self._threads = ThreadPoolExecutor(size)
        self._stack = ExitStack()

    def __enter__(self) -> "Crowd":
        self._stack.enter_context(self._threads)
        for client in self._clients:
            self._stack.enter_context(client)
            client.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def at_once(self, asks: Sequence[Ask]) -> list[Answer]:
        """Ask one thing from each client, and return the answers in that order."""
        start = Barrier(len(asks))

        def ask(client: Client, what: Ask) -> Answer:
            start.wait(TIMEOUT)
            return client.post(what.path, **what.data)

        try:
            return list(self._threads.map(ask, self._clients[: len(asks)], asks))
        except BaseException:  # a signal may come before all were told: those that were would wait for the others
            start.abort()
            raise


def log_in(address: str, name: str, password: str) -> dict[str, str]:
    """Log in as a person does, and return the cookies.

    Raises:
        RuntimeError: the site refuses.
    """
    connection = HTTPConnection(address, timeout=TIMEOUT)
    try:
        connection.request("GET", "/admin/login/")
        cookies = _cookies(connection)
        form = {"username": name, "password": password, "csrfmiddlewaretoken": cookies["csrftoken"]}
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Cookie": f"csrftoken={cookies['csrftoken']}",
        }
        connection.request("POST", "/admin/login/?next=/", urlencode(form), headers)
        cookies |= _cookies(connection)
    finally:
        connection.close()
    if "sessionid" not in cookies:
        raise RuntimeError(f"{name} can't log in at {address}")
    return cookies


def _cookies(connection: HTTPConnection) -> dict[str, str]:
    response = connection.getresponse()
    response.read()
    found = (re.match(r"(\w+)=([^;]*)", each) for each in response.headers.get_all("Set-Cookie", []))
    return {match[1]: match[2] for match in found if match}
