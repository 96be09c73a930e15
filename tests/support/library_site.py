"""examples/library in its own processes, started as in its README."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "examples" / "library"


def environment_of(data: Path) -> dict[str, str]:
    """Return the environment of the site's processes: with files in the folder `data`, and on any free port."""
    foreign = ("LIBRARY_", "DJANGO_", "GUNICORN_", "PG", "PYTHONWARNINGS")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    # `run` uses the active virtual environment: set it to the one of the tests.
    own = {"LIBRARY_DATA": str(data), "LIBRARY_PORT": "0", "PYTHONUNBUFFERED": "1", "VIRTUAL_ENV": sys.prefix}
    return {**kept, **own}


class Example:
    """Runs commands of examples/library.

    Args:
        data: a temporary folder for the files of the site.
    """

    def __init__(self, data: Path) -> None:
        self.data = data
        data.mkdir()
        self.environment = environment_of(data)

    @contextmanager
    def start(self, *command: str | Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
        """Start a command in its own process group, which is killed at the end of the block."""
        process = subprocess.Popen(
            command,
            cwd=LIBRARY,
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        with process:
            try:
                yield process
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def run(self, *command: str | Path, timeout: float, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a Python command to its end."""
        with self.start(sys.executable, *command, **variables) as process:
            said, complained = process.communicate(timeout=timeout)
        return subprocess.CompletedProcess(command, process.returncode, said, complained)


def processes_of(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found = []
    for each in Path("/proc").iterdir():
        if not each.name.isdigit():
            continue
        try:
            # After the name, which may contain spaces: state, parent, group.
            state, _parent, its_group = (each / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state != "Z":
            found.append(int(each.name))
    return found
