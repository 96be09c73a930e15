"""Pythons of Debian's unstable suite, in a folder of the virtual environment: newer ones than the machine's."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.servers.cached import CACHE, ROOT, install_wheels, made_alone, requirements
from tests.servers.home import Missing, program

VERSIONS = ("3.14", "3.15")
SUITE, MIRROR = "sid", "http://deb.debian.org/debian"
FURTHER = (
    "fastapi>=0.115", "hypothesis>=6.100", "mypy>=1.13", "psycopg[binary]>=3.2", "pytest>=9.0", "pytest-asyncio>=1.0",
    "pytest-timeout>=2.3", "pytest-xdist>=3.6",
)  # fmt: skip
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "linux_x86_64")
PRIVATE = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
"""A mount of /proc that nobody else sees; all processes end with the first."""
ENTER = 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/dev/shm" && exec chroot "$@"'
COMPILED = (
    "src/interlock/stores/*/*.so"  # of the stable ABI: made for the machine's Python, and used by the newer ones
)


def debootstrap_program() -> Path:
    """Return the path of debootstrap.

    Raises:
        Missing: it is not installed, or can't be used here; the message says why.
    """
    if os.geteuid() != 0:
        raise Missing("debootstrap and chroot need root")
    return program("debootstrap", "apt-get install debootstrap")


class DebianPython:
    """A Python of Debian's unstable suite; made at the first use (100 s, 0.6 GB).

    Args:
        version: one of `VERSIONS`.

    Raises:
        Missing: Debian's packages can't be had or used here.
        NotStarted: the packages of Python that tests need could not be installed.
    """

    def __init__(self, version: str) -> None:
        self._version = version
        self._root = CACHE / f"debian-{SUITE}"
        with made_alone(self._root.with_suffix(".made"), f"{SUITE} {MIRROR} {VERSIONS}") as missing:
            if missing:
                self._make()
        if not (self._root / "usr" / "bin" / f"python{version}").exists():
            raise Missing(f"Debian's suite {SUITE} has no python{version}")
        wanted = requirements(None, *FURTHER)
        packages = self._root / "packages" / version
        with made_alone(packages, "\n".join(wanted)) as missing:
            if missing:
                install_wheels(packages, version, PLATFORMS, wanted)

    def _make(self) -> None:
        shutil.rmtree(self._root, ignore_errors=True)
        where = (SUITE, str(self._root), MIRROR)
        _obtain(str(debootstrap_program()), "--variant=minbase", "--include=ca-certificates", *where)
        for version in VERSIONS:
            install = ("apt-get", "-qq", "install", "--no-install-recommends", "-y", f"python{version}")
            with contextlib.suppress(Missing):  # it is reported when the version is used
                _obtain(*self._entering("env", "DEBIAN_FRONTEND=noninteractive", *install))

    def run(self, *arguments: str, timeout: float) -> "subprocess.CompletedProcess[str]":
        """Run Python in a copy of the project; return its status and its output, standard error among it.

        Args:
            arguments: of `python`.
            timeout: seconds.
        """
        self._copy_project()
        ours = {name: value for name, value in os.environ.items() if name == "TERM"}
        more = {"PATH": "/usr/bin:/bin:/usr/sbin", "LANG": "C.UTF-8", "HOME": "/root"}
        command = f'cd /project && exec python{self._version} "$@"'
        return subprocess.run(
            self._entering("sh", "-c", command, "sh", *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout,
            env={**ours, **more, "PYTHONPATH": f"/project/src:/packages/{self._version}"},
            check=False,
        )

    def _entering(self, *command: str) -> list[str]:
        return [*PRIVATE, "sh", "-c", ENTER, "sh", str(self._root), *command]

    def _copy_project(self) -> None:
        """Copy what git knows or would know, and the compiled part."""
        project = self._root / "project"
        shutil.rmtree(project, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        for path in [*map(ROOT.__truediv__, filter(None, names)), *ROOT.glob(COMPILED)]:
            if path.is_file():
                copy = project / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy)


def _obtain(*command: str) -> None:
    """Run a command that downloads from Debian.

    Raises:
        Missing: it failed; the message has the end of its output.
    """
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise Missing(f"{' '.join(command[-3:])} failed: {(ran.stdout + ran.stderr).strip()[-300:]}")
