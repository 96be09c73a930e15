"""A clock of a server's own, which can be set: a small library stands between it and the system's."""

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.servers.home import Missing
from tests.servers.server import Server

SOURCE = Path(__file__).with_name("clock.c")


def compiler() -> str:
    """Find the C compiler.

    Raises:
        Missing: there is none; the message says how to get it.
    """
    found = shutil.which("cc")
    if found is None:
        raise Missing("there is no C compiler here; get it by: apt-get install gcc libc6-dev")
    return found


def compiled(folder: Path) -> Path:
    """Return the library, made in a folder."""
    library = folder / "clock.so"
    subprocess.run([compiler(), "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return library


class Stepped(Server):
    """What goes before a kind of server: its time of day can be set, its monotonic clock is the system's.

    Attributes:
        ahead: seconds by which it was set forward.
    """

    ahead = 0.0

    def _prepare(self) -> None:
        self._library, self._clock = compiled(self.folder), self.folder / "clock"
        self.step(0.0)
        super()._prepare()

    def step(self, seconds: float) -> None:
        """Set its clock forward, or back.

        Args:
            seconds: by which.
        """
        self.ahead += seconds
        file = os.open(self._clock, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            os.pwrite(file, struct.pack("=q", int(self.ahead * 1e9)), 0)  # at once: the server has it mapped
        finally:
            os.close(file)

    def _command(self) -> Sequence[str | Path]:
        return ["/usr/bin/env", f"LD_PRELOAD={self._library}", f"SERVER_CLOCK={self._clock}", *super()._command()]
