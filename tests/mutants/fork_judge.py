"""A process that has collected the quick tests, and runs them against each error in a forked child."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from socket import socketpair
from typing import Any

from tests.mutants.fork_plugin import CONNECTION
from tests.mutants.pytest_run import ROOT


class ForkJudge:
    """One process with the tests of some files.

    Args:
        tree: the copy of the project where they are.
        tests: the tests that it may run.
        each: seconds that one of them may take.
    """

    def __init__(self, tree: Path, tests: Sequence[str], each: int) -> None:
        files = sorted({test.partition("::")[0] for test in tests})
        ours, theirs = socketpair()
        fd = str(theirs.fileno())
        settings = {**os.environ, "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{ROOT}", CONNECTION: fd}
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.fork_plugin"]
        self._process = subprocess.Popen(
            [*command, f"--timeout={each}", *files], cwd=tree, env=settings, pass_fds=[theirs.fileno()],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        theirs.close()
        self._asked = Connection(ours.detach())
        self.tests = frozenset(self._asked.recv())

    def judge(self, file: Path, code: str, tests: Sequence[str], seconds: float) -> Any:
        """Return whether a test failed and which one; None if only a new process can run with the error."""
        self._asked.send((str(file), code, list(tests), seconds))
        return self._asked.recv()

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._asked.send(None)
        self._asked.close()
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
