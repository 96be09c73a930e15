"""A private clock for a server, which can be set: a small preloaded library replaces the system's clock."""

import os
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.home import program
from tests.servers.server import Server

SOURCE = Path(__file__).with_name("clock.c")


def compiler() -> Path:
    """Find the C compiler.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    return program("cc", "apt-get install gcc libc6-dev")


def compiled(folder: Path) -> Path:
    """Compile the library in a folder; return its path."""
    library = folder / "clock.so"
    subprocess.run([compiler(), "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return library


class Stepped(Server):
    """A mixin for a kind of server: its time of day can be set, its monotonic clock is the system's.

    Attributes:
        ahead: seconds by which its clock was set forward.
    """

    ahead = 0.0

    def _prepare(self) -> None:
        self._library, self._clock = compiled(self.folder), self.folder / "clock"
        self.step(0.0)
        super()._prepare()

    def step(self, seconds: float) -> None:
        """Set its clock forward, or back.

        Args:
            seconds: how far; negative to set it back.
        """
        self.ahead += seconds
        file = os.open(self._clock, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, struct.pack("=q", int(self.ahead * 1e9)), 0)  # the server has the file mapped
        finally:
            os.close(file)

    def _command(self) -> Sequence[str | Path]:
        return ["/usr/bin/env", f"LD_PRELOAD={self._library}", f"SERVER_CLOCK={self._clock}", *super()._command()]
