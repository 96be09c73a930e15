"""What is downloaded once for the tests, and kept in a folder of the virtual environment."""

import fcntl
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.home import NotStarted

ROOT = Path(__file__).parents[2]
CACHE = Path(sys.prefix) / "cached"


@contextmanager
def made_alone(folder: Path, recipe: str) -> Iterator[bool]:
    """Let one process at a time make what is in a folder; yield True if it was not made, or by another recipe.

    Args:
        folder: the folder; it is made.
        recipe: a text that changes with what is in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "made-of"
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        missing = not done.exists() or done.read_text() != recipe
        if missing:
            done.unlink(missing_ok=True)
        yield missing
        if missing:
            done.write_text(recipe)


def requirements(extras: Iterable[str] | None, *further: str) -> list[str]:
    """Return the requirements of the package's extras (None: of all) in pyproject.toml, and further ones."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = {each for name in extras or known for each in known[name] if not each.startswith("interlock")}
    return sorted(found | set(further))


def pip(*words: str) -> None:
    """Run a command of pip.

    Raises:
        NotStarted: it failed; the message says why.
    """
    command = [sys.executable, "-m", "pip", words[0], "--quiet", "--disable-pip-version-check", *words[1:]]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise NotStarted(f"pip {words[0]} failed:\n{ran.stderr[-2000:]}")


def install_wheels(folder: Path, version: str, platforms: Iterable[str], wanted: Iterable[str]) -> None:
    """Install wheels for another Python or platform into a folder, for PYTHONPATH.

    Args:
        folder: the folder.
        version: the version of CPython, like "3.13".
        platforms: tags of the platform.
        wanted: requirements; pip evaluates their markers for the running Python.
    """
    pip(
        "install", "--target", str(folder), "--upgrade", "--only-binary=:all:", "--implementation", "cp",
        "--python-version", version, *(f"--platform={each}" for each in platforms), *wanted,
    )  # fmt: skip
