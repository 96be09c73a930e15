"""The one table of stores, over which all tests of the contract run: a new store is one more row."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from interlock.testing.register import MemoryRegister, RegisterStore
from interlock.testing.world import Place
from interlock.urls import open_store


@dataclass(frozen=True)
class Row:
    """One store.

    Attributes:
        name: what it is called in the names of tests.
        scheme: its URL scheme; None for a store that exists for tests only.
        place: makes an empty place for locks, with an empty folder at its disposal.
        reaches_processes: True if other processes can see its locks.
    """

    name: str
    scheme: str | None
    place: Callable[[Path], Place]
    reaches_processes: bool = False


def _memory(folder: Path) -> Place:
    url = f"memory://{uuid4().hex}"
    return Place(open=lambda: open_store(url))


def _file(folder: Path) -> Place:
    url = f"file://{folder / 'locks'}"
    return Place(open=lambda: open_store(url), url=url, frees_at_death=True)


def _register(folds: bool) -> Callable[[Path], Place]:
    def place(folder: Path) -> Place:
        register = MemoryRegister(folds)
        return Place(open=lambda: RegisterStore(register))

    return place


ROWS = [
    Row("memory", "memory", _memory),
    Row("file", "file", _file, reaches_processes=True),
    Row("register", None, _register(folds=False)),
    Row("register that folds", None, _register(folds=True)),
]
