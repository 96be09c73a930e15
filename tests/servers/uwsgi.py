"""A private uWSGI that serves one file in several workers, for tests."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.servers.home import Missing, eventually, program
from tests.servers.server import Server


def uwsgi_program() -> Path:
    """Return the path of the server's program.

    Raises:
        Missing: it is not installed, or for another Python; the message says how to get it.
    """
    how = "pip install uwsgi (it is compiled: gcc and python3-dev are needed)"
    found = program("uwsgi", how)
    version = subprocess.run([found, "--python-version"], capture_output=True, text=True).stdout
    if version.split(".")[:2] != [str(number) for number in sys.version_info[:2]]:
        raise Missing(f"`uwsgi` is of Python {version.strip()}; get it by: {how}")
    return found


class Uwsgi(Server):
    """A master and three workers on a free port of 127.0.0.1, without lazy-apps; a context manager.

    Args:
        program: the text of the module with `application`, which the master imports.
        environment: additional environment variables.
        options: more options of the command.
    """

    _kills = _stops = signal.SIGINT  # its workers end with it

    def __init__(self, program: str, environment: dict[str, str], options: Sequence[str] = ()) -> None:
        self._program = uwsgi_program()
        self._text = program
        self._environment = environment
        self._options = options
        super().__init__("uwsgi", None, None)

    def _prepare(self) -> None:
        (self.folder / "app.py").write_text(self._text)

    def _command(self) -> Sequence[str | Path]:
        return [
            *("/usr/bin/env", *(f"{name}={value}" for name, value in self._environment.items())),
            *(self._program, "--virtualenv", sys.prefix, "--master", "--workers", "3", "--wsgi-file", "app.py"),
            *("--http-socket", f"{self.host}:{self.port}", *self._options),
        ]

    def _answers(self) -> bool:
        return bool(self.ask(""))

    def ask(self, path: str) -> dict[str, Any]:
        """Return the application's answer.

        Raises:
            OSError: the application does not answer.
        """
        with urllib.request.urlopen(f"http://{self.host}:{self.port}/{path}", timeout=60) as answer:
            return dict(json.loads(answer.read()))

    def reload(self) -> None:
        """Let it import the module again and start new workers; return when they answer."""
        before = self.ask("")["loaded"]
        os.kill(self.pid, signal.SIGHUP)
        eventually(lambda: self.ask("")["loaded"] != before, self._failure, "uwsgi reloads")
