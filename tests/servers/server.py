"""The base of all private servers: a process on its own port that can be started, killed and paused."""

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from tests.servers.home import Closing, Home, NotStarted, Port, eventually, last_lines
from tests.servers.tls import TlsFiles


class Server(Closing):
    """A private server on a free port of 127.0.0.1, which ends with its owner; use it as a context manager.

    Args:
        what: the name of its program, for messages.
        port: the port; None for any free one.
        home: the home to use; None for a new one.
        tls: True if it needs certificates.

    Attributes:
        host, port: its address.
        folder: its temporary folder.
        log: the file of its output.
        tls: its certificates, if it needs them.
    """

    _kills: ClassVar[signal.Signals] = signal.SIGKILL
    _stops: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, what: str, port: int | None, home: Home | None, tls: bool = False) -> None:
        self.what = what
        self.host = "127.0.0.1"
        self._port = Port(port)
        self.port = self._port.number
        self._owns_home = home is None
        self._home = home or Home(what)
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = self._home.folder / str(self.port)
        self.log = self.folder / "log"
        try:
            self.folder.mkdir()
            self.tls = TlsFiles(self.folder / "tls") if tls else None
            self._prepare()
            self.start()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        """Write the files that it needs before its first start."""

    def _command(self) -> Sequence[str | Path]:
        """Return the program and its arguments."""
        raise NotImplementedError

    def _answers(self) -> bool:
        """Return True if it is ready; raise `OSError` if it can't be reached yet."""
        raise NotImplementedError

    def start(self) -> None:
        """Start it on the same port, and return when it answers; do nothing if it runs.

        Raises:
            NotStarted: it did not start; the message has the last lines of its log.
        """
        if self.running:
            return
        self._process = self._home.spawn(str(self.port), self._command(), ends=self._kills, log=self.log)
        eventually(self._answers, self._failure, f"{self.what} on port {self.port}")

    def _failure(self) -> str | None:
        return None if self.running else f"it ended by itself:\n{last_lines(self.log)}"

    @property
    def running(self) -> bool:
        """True if its process exists, also a paused one."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of its process.

        Raises:
            NotStarted: it is down.
        """
        if self._process is None or self._process.poll() is not None:
            raise NotStarted(f"{self.what} on port {self.port} is down: start() it first")
        return self._process.pid

    def kill(self) -> None:
        """Kill it at once, in the middle of any action; do nothing if it is down."""
        self._end(self._kills)

    def stop(self) -> None:
        """Ask it to end, and wait for its end; do nothing if it is down."""
        self._end(self._stops)

    def restart(self) -> None:
        """Kill it if it runs, and start it on the same port."""
        self.kill()
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)
            self._process.wait()
        self._home.forget(str(self.port))
        self._process = None

    def pause(self) -> None:
        """Stop the process (SIGSTOP), and wait until it is stopped: connections stay open without answers."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def resume(self) -> None:
        """Continue a paused process."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder; safe to repeat."""
        self.kill()
        self._port.close()
        if self._owns_home:
            self._home.close()
