"""`interlock serve` in a separate process, and requests to it, as of browsers and other clients."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

WAIT_LIMIT = 30.0
TOKEN = "a-token-of-the-tests"


class Served:
    """A running `interlock serve`.

    Args:
        process: its process.
        said: the line that it printed.
    """

    def __init__(self, process: "subprocess.Popen[str]", said: str) -> None:
        self.process = process
        self.said = said
        found = re.search(r"http://(127\.0\.0\.1:(\d+))/", said)
        assert found is not None, said
        self.host, self.port = found[1], int(found[2])

    def connect(self) -> http.client.HTTPConnection:
        """Return a new connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_LIMIT)

    def ask(self, path: str, method: str = "GET", body: Any = None, **headers: str) -> tuple[int, Any, str]:
        """Send a request; return the status, the headers and the text of the response."""
        with closing(self.connect()) as connection:
            sent = {key.replace("_", "-"): value for key, value in headers.items()}
            connection.request(method, path, body, {"Host": self.host, **sent})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def evict(self, name: str, id: str, **headers: str) -> tuple[int, Any]:
        """Request an eviction as the page does, but with these headers; return the status and the response."""
        ours = {"Content_Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
        body = json.dumps({"name": name, "id": id})
        status, _, text = self.ask("/evict", "POST", body, **{**ours, **headers})
        return status, json.loads(text)

    def look(self) -> Any:
        """Return what the page shows."""
        status, _, text = self.ask("/look")
        assert status == 200
        return json.loads(text)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; return the exit status and the error output."""
        self.process.send_signal(number)
        _, errors = self.process.communicate(timeout=WAIT_LIMIT)
        return self.process.returncode, errors


@contextmanager
def served(url: str, folder: Path, *words: str, token: str | None = TOKEN) -> Iterator[Served]:
    """Serve the page of a store.

    Args:
        url: the URL of the store.
        folder: the working directory of the command.
        words: more arguments of the command.
        token: the token for the environment; None for none.
    """
    environment = {**os.environ, "INTERLOCK_URL": url}
    if token is not None:
        environment["INTERLOCK_SERVE_TOKEN"] = token
    process = subprocess.Popen(
        [sys.executable, "-m", "interlock", "serve", "--port", "0", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, process.communicate()[1]
        yield Served(process, said)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
