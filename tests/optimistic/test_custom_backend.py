"""A custom backend for `transact`: versioned rows of SQLite, in a few lines."""

import sqlite3
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.optimistic import Conflict, Queued, TryAgain, transact
from interlock.optimistic.tries import Tries


class Rows:
    """A table of books as a backend: a row is watched by its version, and a commit checks all versions."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(self.connect()) as connection:
            connection.execute("CREATE TABLE book (id INTEGER PRIMARY KEY, copies INTEGER, version INTEGER)")
            connection.executemany("INSERT INTO book VALUES (?, ?, 1)", [(1, 5), (2, 5)])

    def connect(self) -> sqlite3.Connection:
        """A connection that commits each statement unless told to begin."""
        return sqlite3.connect(self.path, isolation_level=None, timeout=10, check_same_thread=False)

    def begin(self, tries: Tries) -> "RowAttempt":
        """Begin one try."""
        return RowAttempt(self.connect(), tries.number)

    def buy(self, number: int) -> None:
        """Change a row as another program would."""
        with closing(self.connect()) as connection:
            connection.execute("UPDATE book SET copies = copies + 1, version = version + 1 WHERE id = ?", [number])

    def copies(self) -> list[int]:
        """Return the copies in the table."""
        with closing(self.connect()) as connection:
            return [copies for (copies,) in connection.execute("SELECT copies FROM book ORDER BY id")]


class RowAttempt:
    """One try on rows."""

    def __init__(self, connection: sqlite3.Connection, number: int) -> None:
        self._connection = connection
        self._versions: dict[int, int] = {}
        self.writes: list[Queued] = []
        self.transaction = Shelf(self, number)

    @property
    def keys(self) -> Sequence[int]:
        """The rows that were read."""
        return list(self._versions)

    def watch(self, keys: Sequence[int]) -> None:
        """Note the versions."""
        for key in keys:
            self.read(key)

    def read(self, request: int) -> int:
        """Read a row, and note its version."""
        copies, version = self._connection.execute(
            "SELECT copies, version FROM book WHERE id = ?", [request]
        ).fetchone()
        if self._versions.setdefault(request, version) != version:
            raise TryAgain(f"book {request} changed between two reads")
        return int(copies)

    def commit(self) -> bool:
        """Check all versions and write, in one transaction of the database."""
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            for key, version in self._versions.items():
                if self._connection.execute("SELECT version FROM book WHERE id = ?", [key]).fetchone() != (version,):
                    return False
            for write in self.writes:
                self._connection.execute(
                    "UPDATE book SET copies = ?, version = version + 1 WHERE id = ?", write.request
                )
                write.settle("written")
            return True

    def __enter__(self) -> "RowAttempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()


class Shelf:
    """The argument that the function receives."""

    def __init__(self, attempt: RowAttempt, number: int) -> None:
        self._attempt = attempt
        self.number = number

    def copies(self, book: int) -> int:
        """Read now."""
        return self._attempt.read(book)

    def save(self, book: int, copies: int) -> Queued:
        """Write at the commit."""
        self._attempt.writes.append(Queued((copies, book), f"save({book})"))
        return self._attempt.writes[-1]


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path / "books")


def move(tx: Any) -> int:
    """Move a copy from one row to another."""
    left = tx.copies(1) - 1
    tx.save(1, left)
    tx.save(2, tx.copies(2) + 1)
    return left


@pytest.mark.parametrize("changed", [1, 2])
def test_a_row_that_changed_runs_the_function_again(rows: Rows, changed: int) -> None:
    def function(tx: Any) -> int:
        left = move(tx)
        if tx.number < 3:
            rows.buy(changed)
        return left

    assert transact(rows, function) == (6 if changed == 1 else 4)
    assert sum(rows.copies()) == 12


def test_a_row_that_is_only_watched_counts(rows: Rows) -> None:
    def function(tx: Any) -> Any:
        if tx.number == 1:
            rows.buy(2)
        return tx.save(1, tx.number)

    assert transact(rows, function, 2) == "written"
    assert rows.copies() == [2, 6]


def test_a_backend_may_ask_for_another_try(rows: Rows) -> None:
    def function(tx: Any) -> int:
        tx.copies(1)
        if tx.number == 1:
            rows.buy(1)
        return int(tx.copies(1))

    assert transact(rows, function) == 6


def test_a_conflict_names_the_rows(rows: Rows) -> None:
    def function(tx: Any) -> None:
        move(tx)
        rows.buy(1)

    with pytest.raises(Conflict, match=r"data that was read \(1, 2\)") as caught:
        transact(rows, function, retries=1)
    assert caught.value.keys == (1, 2)
    assert rows.copies() == [7, 5]


def test_trouble_without_end_is_told_as_what_it_is(rows: Rows) -> None:
    def function(tx: Any) -> None:
        raise TryAgain("deadlock")

    with pytest.raises(StoreError, match=r"deadlock \(in each of 3 tries\)"):
        transact(rows, function, retries=2)


def test_an_unknown_outcome_of_a_backend_is_passed_on(rows: Rows) -> None:
    numbers = []

    def function(tx: Any) -> None:
        numbers.append(tx.number)
        raise UnknownOutcome("no answer")

    with pytest.raises(UnknownOutcome):
        transact(rows, function)
    assert numbers == [1]


def test_threads_lose_no_copy(rows: Rows) -> None:
    def work(_: int) -> None:
        for _ in range(10):
            transact(rows, move, retries=None)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert rows.copies() == [5 - 40, 5 + 40]
