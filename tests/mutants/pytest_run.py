"""Run pytest in a copy of the tree, and kill it if it hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from shutil import copytree, ignore_patterns
from tempfile import TemporaryFile
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
NOT_COPIED = ignore_patterns(".git", ".venv*", "__pycache__", ".*_cache", "*.pyc", "results", "build", "node_modules")
PASSED, FAILED = 0, 1  # exit statuses of pytest


class Ended(NamedTuple):
    """How a run of pytest ended.

    Attributes:
        status: its exit status; None if it took too long.
        said: its output.
    """

    status: int | None
    said: str


def copied_to(tree: Path, root: Path = ROOT) -> Path:
    """Copy the project without generated files."""
    copytree(root, tree, ignore=NOT_COPIED)
    return tree


def run_pytest(tree: Path, words: Sequence[str], longest: float, **environment: str) -> Ended:
    """Run tests in a tree.

    Args:
        tree: a copy of the project.
        words: for pytest.
        longest: seconds after which it is killed.
        environment: variables to set.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    settings = {**os.environ, "PYTHONPATH": str(tree / "src"), **environment}
    with TemporaryFile("w+", errors="replace") as output:  # no pipe: a process left by a test would keep it open
        process = subprocess.Popen(
            command, cwd=tree, env=settings, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status: int | None = process.wait(longest)
        except subprocess.TimeoutExpired:
            status = None
        finally:  # also after a Ctrl-C; ends the tests' processes too
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return Ended(status, output.read())
