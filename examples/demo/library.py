"""The library web site of the original scheme: books in SQLite, saved as an ORM saves them, whole row by whole row.

How a lost update is counted. Each row carries a counter per field, raised by whoever changes that field; each
save also adds one entry to the ledger, in the same transaction. A saved row descends from the one row that
its writer read, so a field's counter is the number of changes of that field in the row's line of descent.
Changes in the ledger that the final row does not descend from were overwritten by somebody's stale copy:

    lost = entries in the ledger - counter in the final row        (per book and field, exact)
"""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Field = Literal["status", "name"]

_TITLES = ("Sea of Locks", "Two Clerks", "The Stale Copy", "A Naem of Its Own", "Last Writer Wins")

# A writer that finds another one saving waits this long in SQLite; only a machine that hangs gets there.
_BUSY_SECONDS = 60.0

_SCHEMA = """
CREATE TABLE book (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    status_changes INTEGER NOT NULL,
    name_changes INTEGER NOT NULL
);
CREATE TABLE ledger (
    entry INTEGER PRIMARY KEY,
    book INTEGER NOT NULL REFERENCES book (id),
    field TEXT NOT NULL,
    pid INTEGER NOT NULL,
    waited REAL NOT NULL
);
"""

_LOST = """
SELECT (SELECT count(*) FROM ledger WHERE field = ?) - (SELECT sum({field}_changes) FROM book)
"""


@dataclass(slots=True)
class Book:
    """One row in memory: a copy, which grows stale when somebody else saves the row."""

    id: int
    name: str
    status: str
    status_changes: int
    name_changes: int

    def lend_or_return(self) -> Field:
        """Do what a student does: set the status, and nothing else. Returns the field that changed."""
        self.status = "lent" if self.status == "free" else "free"
        self.status_changes += 1
        return "status"

    def rename(self) -> Field:
        """Do what an administrator does: set the name, and nothing else. Returns the field that changed."""
        self.name_changes += 1
        self.name = f"{_title(self.id)} (name no. {self.name_changes})"
        return "name"


class BookLibrary:
    """A connection to the library's database.

    Args:
        path: the database file, made earlier by `create`.
    """

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
        # The database is thrown away after the demo: nothing is gained by surviving a power cut.
        self._db.execute("PRAGMA synchronous = OFF")

    @classmethod
    def create(cls, path: Path, books: int) -> Self:
        """Make the database file `path` with `books` books, numbered from 1, and connect to it."""
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(_SCHEMA)
            db.executemany(
                "INSERT INTO book VALUES (?, ?, 'free', 0, 0)", [(n, _title(n)) for n in range(1, books + 1)]
            )
        return cls(path)

    def get(self, book_id: int) -> Book:
        """Read the whole row of the book `book_id`; raises LookupError if there is none."""
        row = self._db.execute(
            "SELECT id, name, status, status_changes, name_changes FROM book WHERE id = ?", (book_id,)
        ).fetchone()
        if row is None:
            raise LookupError(f"there is no book {book_id}")
        return Book(*row)

    def save(self, book: Book, changed: Field, waited: float = 0.0) -> None:
        """Write the whole row back, as Django's `save()` does, and enter the change in the ledger.

        Args:
            book: the row as it shall be; every column is written, changed or not.
            changed: the field that the caller meant to change.
            waited: seconds that the caller waited for its lock; kept in the ledger.
        """
        # IMMEDIATE waits for other writers at the start; a read that turns into a write half-way fails.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(
                "UPDATE book SET name = ?, status = ?, status_changes = ?, name_changes = ? WHERE id = ?",
                (book.name, book.status, book.status_changes, book.name_changes, book.id),
            )
            self._db.execute(
                "INSERT INTO ledger (book, field, pid, waited) VALUES (?, ?, ?, ?)",
                (book.id, changed, os.getpid(), waited),
            )
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def updates(self) -> int:
        """Return how many updates were saved with success."""
        # Entries are numbered 1, 2, 3, ... and never deleted: the last number is the count, without a scan.
        return int(self._db.execute("SELECT coalesce(max(entry), 0) FROM ledger").fetchone()[0])

    def lost(self, field: Field) -> int:
        """Return how many saved changes of `field` are not in the final rows; see the head of this module."""
        return int(self._db.execute(_LOST.format(field=field), (field,)).fetchone()[0])

    def longest_wait(self) -> float:
        """Return the longest wait for a lock, in seconds, among all saved updates."""
        return float(self._db.execute("SELECT coalesce(max(waited), 0) FROM ledger").fetchone()[0])

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _title(book_id: int) -> str:
    return f"{_TITLES[(book_id - 1) % len(_TITLES)]}, copy {book_id}"
