"""Helpers for tests of the file store's folder."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import interlock
from interlock.testing.waiting import eventually, moment, since

SLACK = 0.8
"""Seconds of delay on a busy machine."""

TRY = "grant = locks.lock('book').acquire(timeout=0)\nresult = grant is not None"
"""Statements by which another process tries to take the lock "book": `remote.do(TRY)` returns True if it has it."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Check that the block takes no longer."""
    started = moment()
    yield
    assert since(started) < seconds + SLACK


def descriptors() -> set[str]:
    """Return the open descriptors of this process, with their files."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except OSError:
            pass  # the descriptor of the listing
    return {each for each in found if not each.endswith("/fd")}


def connect(folder: Path) -> interlock.Locks:
    """Connect to the folder."""
    return interlock.connect(f"file://{folder}")


def until_not_trusted() -> None:
    """Wait until files in their folder are checked again."""
    passed = time.monotonic() + 0.05
    eventually(lambda: time.monotonic() > passed)


def complaints(locks: interlock.Locks) -> str:
    """Return the problems that the doctor finds."""
    return " ".join(f"{check.name}: {check.detail}" for check in locks.doctor() if check.status != "ok")


def until_waiting(folder: Path, number: int, name: str = "book") -> None:
    """Wait until so many claims wait."""
    with connect(folder) as eye:
        eventually(lambda: sum(view.state == "pending" for view in eye.claims(name)) == number)


def pipes_of(folder: Path, pid: int) -> list[Path]:
    """Return the pipes at which a process waits."""
    return sorted(path for path in (folder / "alive").iterdir() if path.name.startswith(f"{pid}-") and path.suffix)


def liveness_pipes_of(folder: Path, pid: int) -> list[Path]:
    """Return the liveness pipe of a process, if it has one, in a list."""
    return sorted(p for p in (folder / "alive").iterdir() if p.name.startswith(f"{pid}-") and not p.suffix)


def remove_from(folder: Path, pid: int) -> None:
    """Remove the pipes of a process from alive/, as a tmp cleaner does."""
    for path in [*liveness_pipes_of(folder, pid), *pipes_of(folder, pid)]:
        path.unlink()
