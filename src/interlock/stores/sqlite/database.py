"""The step store on a SQLite file: one connection per process, one step at a time."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

from interlock.core.claims import MICROS, Check
from interlock.core.errors import StoreError
from interlock.core.failures import TransientRefusal, closed
from interlock.core.line import (
    EMPTY,
    Line,
    StepResult,
    StoreTime,
    Transition,
    complete,
    decode,
    encode,
    is_nothing,
    look,
    read_record,
)
from interlock.runtime import clock
from interlock.runtime.host_notifier import neighbours, sooner
from interlock.runtime.process import around_forks, checked_pid, in_forked_child
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import WITHIN_A_STEP, Section
from interlock.stores.files.machine import check_of
from interlock.stores.files.open_file import OpenFile
from interlock.stores.sqlite.opening import Opened, SqliteOptions, keep, open_claims, value_kept

FORK = 10.0  # seconds that a fork waits for a step; the first step takes long, because it opens the files
REMEMBERED = 256  # lines
_TRANSIENT = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_NOMEM)
_ADVICE = {
    sqlite3.SQLITE_READONLY: "The file or its folder is read-only. Change its mode, or mount it for writing.",
    sqlite3.SQLITE_CANTOPEN: "The file or its journal (-journal) cannot be opened. Check the modes of both and of "
    "the folder, and the limit of open files (ulimit -n).",
    sqlite3.SQLITE_FULL: "The disk is full. Free some space.",
    sqlite3.SQLITE_IOERR: "The disk fails or is full, or a file-size limit applies. Check the machine's log.",
    sqlite3.SQLITE_NOTADB: "The file is not a SQLite database. Remove it, or give the locks another path.",
    sqlite3.SQLITE_CORRUPT: "The file is damaged. End its users, remove it, and find the program that wrote to it.",
    sqlite3.SQLITE_PERM: "This user must not access the file. Change its mode.",
}


class Database(StepStore):
    """The lines of a file; a step blocks only for the disk, and reports a locked file as busy.

    Args:
        options: the file.
    """

    poll_after = 5.0  # seconds; a safety net, because processes of this host notify each other of every hand-over
    notifier = neighbours

    def __init__(self, options: SqliteOptions) -> None:
        self.options = options
        self.users = 0
        self.section = Section()
        self._opened: Opened | None = None
        self._lines: dict[str, tuple[str, Line]] = {}  # by key: a text that was written here, and its line

    def step(self, key: str, transition: Transition, *args: object) -> StepResult | None:
        """Perform a step; see `StepStore.step`.

        Raises:
            TransientRefusal: the disk is full.
            StoreError: the file was replaced or can't be written, or the caller is a signal handler or a finalizer
                that interrupted a step of its own thread.
        """
        checked_pid()
        if _held:
            with _mutex:  # let the fork go first, because busy threads could delay it forever
                pass
        with self.section.mutex:  # not `Section.entered`, because the traceback of an interrupt could keep it taken
            if self.section.taken:
                raise StoreError(WITHIN_A_STEP)
            self.section.taken = True
            try:
                return self._do(key, transition, args)
            except sqlite3.Error as error:
                self._failed(error)
                return None
            finally:
                self.section.taken = False

    def _do(self, key: str, transition: Transition, args: tuple[object, ...]) -> StepResult:
        opened = self._open()
        execute = opened.connection.execute
        name = key.encode()
        try:
            if opened.connection.in_transaction:  # an interrupt prevented the rollback of an earlier step
                opened.connection.rollback()
            execute("BEGIN IMMEDIATE")
            if not opened.file.is_found():
                raise sqlite3.OperationalError("its file does not exist")
            row = execute("SELECT text FROM line WHERE key = ?", (name,)).fetchone()
            before = EMPTY if row is None else self._line(key, row[0])
            now = StoreTime(int(clock.now() * MICROS), int(clock.awake_or_not() * MICROS) + opened.ahead)
            step = transition(before, now, *args)
            line = step.line
            if line is not None:
                if line.record_expires != before.record_expires:
                    keep(
                        self.options.path,
                        name,
                        line.record_expires,
                        now.stamp,
                        str(args[-1]) if transition is complete else "",
                    )
                if is_nothing(line, now):
                    if row is not None:
                        execute("DELETE FROM line WHERE key = ?", (name,))
                else:
                    text = encode(line)
                    execute("REPLACE INTO line VALUES (?, ?)", (name, text))
                    if len(self._lines) >= REMEMBERED:
                        self._lines.clear()
                    self._lines[key] = text, line
            if step.answer is True and transition is read_record:
                step = step._replace(answer=value_kept(self.options.path, name))
            execute("COMMIT")
        except BaseException:
            opened.connection.rollback()
            raise
        return sooner(step, line or before, now)

    def _line(self, key: str, text: str) -> Line:
        known = self._lines.get(key)
        if known is not None and known[0] == text:
            return known[1]
        try:
            return decode(text)
        except ValueError as error:
            raise StoreError(f"{self.options.path} has a record that interlock did not write: {error}") from error

    def _open(self) -> Opened:
        if not self.users:
            raise closed()
        if self.options.path in _unusable:
            raise StoreError(
                "This process was forked without Python's hooks while another thread was in a step, so SQLite is "
                "unusable. Restart the process, or fork while no thread locks."
            )
        if self._opened is not None and self._opened.file.links() < 0:
            self._drop()
        if self._opened is None:
            alive = OpenFile(self.options.path)
            try:
                self._opened = open_claims(self.options, alive)
            except BaseException:
                alive.close()
                raise
        return self._opened

    def _failed(self, error: sqlite3.Error) -> None:
        """Return if the file is busy; after other errors close it, to be reopened.

        Raises:
            StoreError: as `step`.
        """
        if self._opened is not None and not self._opened.file.is_found():
            self._drop()
            raise StoreError(
                f"{self.options.path}-… was removed or replaced while in use, so its holders have lost their locks. "
                f"Find the program that removed it, and retry."
            ) from error
        code = (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL):
            return
        self._drop()
        raise (TransientRefusal if code in _TRANSIENT else StoreError)(
            f"{self.options.path}: {error}. {_ADVICE.get(code, 'Run `interlock doctor`.')}"
        ) from error

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix`."""
        checked_pid()
        with self.section.entered():
            try:
                rows = self._open().connection.execute("SELECT key FROM line WHERE key >= ?", (prefix.encode(),))
                return sorted(key for (name,) in rows.fetchall() if (key := name.decode()).startswith(prefix))
            except sqlite3.Error as error:
                self._failed(error)
                raise TransientRefusal(f"{self.options.path} is busy. Retry.") from error

    def doctor(self) -> list[Check]:
        """Check the file system, and the file."""
        checks = [Check("version", "ok", f"SQLite {sqlite3.sqlite_version}"), check_of(Path(self.options.path))]
        try:
            self.step("\0doctor", look)
            with self.section.entered():
                health = self._open().connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except (StoreError, sqlite3.Error) as error:
            return [*checks, Check("file", "fail", str(error))]
        return [*checks, Check("contents", "ok" if health == "ok" else "fail", f"quick_check returned {health}.")]

    def _drop(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def close(self) -> None:
        """Drop one reference; close the file when none remain."""
        with _mutex:
            self.users -= 1
            neighbours.leave()
            if not self.users:
                _databases.pop(self.options.path, None)
                with self.section.mutex:
                    self._drop()

    abort = close

    def inherit(self) -> None:
        """Forget the parent's connection in a forked child, without closing it.

        Closing or finalizing it would roll back the parent's transaction, if there is one.
        """
        opened, self._opened = self._opened, None
        self.section = Section()
        if opened is not None:
            if opened.connection.in_transaction:
                _unusable.add(self.options.path)
            opened.close(leak=True)


_databases: dict[str, Database] = {}
_mutex = threading.RLock()
_held: list[Any] = []
_unusable: set[str] = set()


def database_of(options: SqliteOptions) -> Database:
    """Return this process's database at a path, for another client, which must close it."""
    with _mutex:
        database = _databases.setdefault(options.path, Database(options))
        database.users += 1
        neighbours.join()
        return database


def _before_fork() -> None:
    """Wait until no thread is inside SQLite, whose locks would stay locked in the child."""
    _mutex.acquire()
    _held.append(_mutex)
    _held.extend(
        database.section.mutex
        for database in list(_databases.values())
        if database.section.mutex.acquire(timeout=FORK)
    )


def _after_fork_in_parent() -> None:
    held = _held.copy()
    _held.clear()  # before `_mutex` is free, because then it belongs to the fork of another thread
    for each in reversed(held):
        each.release()


def _after_fork_in_child() -> None:
    global _mutex
    _mutex = threading.RLock()
    _held.clear()
    for database in _databases.values():
        database.inherit()
    _databases.clear()


around_forks(before=_before_fork, after_in_parent=_after_fork_in_parent)
in_forked_child(_after_fork_in_child)
