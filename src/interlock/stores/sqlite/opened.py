"""A connection to the file, as one step after the other uses it."""

import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, monotonic_ns, sleep
from typing import Any

from interlock.stores.sqlite.opening import Inode
from interlock.stores.sqlite.problems import is_busy

SHORTEST, LONGEST = 0.0001, 0.005  # seconds until others who write are asked again


class Opened:
    """A connection, and the cursor of the step that is at it, or was the last one.

    Attributes:
        inode: which file it is; None until that is settled.
        ahead: microseconds by which the file's clock is ahead of the monotonic one.
    """

    __slots__ = ("ahead", "connection", "cursor", "inode")

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.cursor = connection.cursor()
        self.inode: Inode | None = None
        self.ahead = 0

    def clock(self) -> int:
        """Return the file's time."""
        return monotonic_ns() // 1000 + self.ahead

    def undo(self) -> None:
        """End the transaction, if there is one, and nothing was done."""
        if self.connection.in_transaction:
            self.connection.rollback()

    def close(self) -> None:
        """Close, unless this thread is inside of SQLite: it would not survive that."""
        with suppress(sqlite3.ProgrammingError):
            self.cursor.close()
            self.connection.close()


def patiently(execute: Callable[[str], Any], words: str, deadline: float) -> None:
    """Execute what begins or ends a transaction, as soon as other processes let us."""
    pause = SHORTEST
    while True:
        try:
            execute(words)
            return
        except sqlite3.OperationalError as error:
            if not is_busy(error) or monotonic() >= deadline:
                raise
        sleep(pause * random.uniform(0.5, 1.5))
        pause = min(LONGEST, pause * 1.5)


def left(deadline: float) -> float:
    """Return the seconds until a deadline, as locks take them."""
    return min(max(0.0, deadline - monotonic()), threading.TIMEOUT_MAX)
