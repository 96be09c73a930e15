"""Leaves the line: ends claims, and tells the next one."""

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from interlock.core.claims import PENDING, QUEUED
from interlock.core.errors import StoreError
from interlock.django import claimlines
from interlock.django.folding import Functions, Promoted
from interlock.django.listener import TELL
from interlock.django.neighbours import neighbours
from interlock.django.performing import Performer, unlocked
from interlock.django.records import hashed
from interlock.django.statements import NOW, Statement
from interlock.django.waiters import LineWaiters
from interlock.runtime import log

SUCCESSOR = (
    "(SELECT w.id FROM interlock_claim w WHERE w.key = interlock_claim.key AND w.id <> interlock_claim.id AND "
    f"w.state IN ('{PENDING}', '{QUEUED}') AND w.until > {NOW['postgresql']} ORDER BY w.number LIMIT 1)"
)
"""The first waiter of a line, of those that the statement sees: one that comes later looks by itself at once."""


class Left(NamedTuple):
    """What became of a claim that left.

    Attributes:
        removed: False if it was not there any more, or not its holder's.
        successor: the claim that may hold the lock now and must be told, where that can be told.
        promoted: the claims that hold the lock by this; those of other processes were told.
    """

    removed: bool
    successor: str | None = None
    promoted: Sequence[Promoted] | None = None


class Leaving:
    """What takes claims out of their lines, for one store.

    Args:
        performer: of its statements.
        waiters: of this process.
        functions: those of PostgreSQL, which also tells waiters of other processes; None elsewhere.
    """

    def __init__(self, performer: Performer, waiters: LineWaiters, functions: Functions | None) -> None:
        self._performer = performer
        self._waiters = waiters
        self._functions = functions

    def leave(self, key: str, id: str) -> bool:
        """End the caller's own claim and hand over; True if it was held until now."""
        left = self._leave(key, id)
        if left.promoted is None:
            self.tell(key, left.successor)
        for each in left.promoted or ():
            self._waiters.notify(*each)
        return left.removed

    def _leave(self, key: str, id: str) -> Left:
        """End a claim; where a connection broke, the record tells whether that was done."""
        tries = count()
        here = self._waiters.ids_of(key)

        def step(connection: Any) -> Left:
            again = next(tries) > 0
            if self._functions is not None and not again:
                promoted = self._functions.leave(connection, hashed(key), id, here)
                if promoted is not None:
                    return Left(True, None, promoted)
            ended = self._end(connection, id, True)
            if ended is not None:
                return Left(True, ended[0])
            if again:
                rows = self._performer.statement(connection, claimlines.released).rows(connection, id=id)
                if rows:
                    return Left(bool(rows[0][0]), self._first_waiter(connection, key))
            ended = self._end(connection, id, None)
            return Left(False, ended and ended[0])

        left: Left = self._performer.do(step, repeats=True)
        return left

    def tell(self, key: str, successor: str | None) -> None:
        """Tell the next in line that it may be its turn: here, or by the database if it waits in another process."""
        self._waiters.wake_first(key)
        if self._functions is None:
            self._wake_neighbour(key)
        elif successor is not None:
            self._wake(successor)

    def _wake_neighbour(self, key: str) -> None:
        """Let the first in line look, if it waits in another process of this host."""
        try:
            rows = self._performer.rows(claimlines.first_waiter, key=hashed(key))
        except StoreError as error:
            log.warn("could not read who is next in line, who will look by itself: %s", error)
            return
        for row in rows:
            neighbours.wake(*row)

    def _wake(self, id: str) -> None:
        if self._waiters.notify(id, 0) or self._functions is None:
            return
        try:
            self._performer.do(lambda connection: Statement(TELL, (id,)).rows(connection))
        except StoreError as error:
            log.warn("could not tell somebody in the line, who will look by itself: %s", error)

    def _first_waiter(self, connection: Any, key: str) -> str | None:
        if self._functions is None:
            return None
        rows = self._performer.statement(connection, claimlines.first_waiter).rows(connection, key=hashed(key))
        return rows[0][0] if rows else None

    def remove_lapsed(self, id: str) -> tuple[str | None] | None:
        """End a claim whose lease is over, unless its holder is about to commit, which nobody waits for here."""

        def step(connection: Any) -> tuple[str | None] | None:
            with unlocked(connection, [id]) as free:
                return self._end(connection, id, False) if free else None

        found: tuple[str | None] | None = self._performer.do(step, repeats=True)
        return found

    def reap(self, key: str, id: str) -> bool:
        reaped = self.remove_lapsed(id)
        if reaped:
            self.tell(key, reaped[0])
        return reaped is not None

    def evict(self, key: str, id: str | None) -> int:
        there = [row[0] for row in self._performer.rows(claimlines.ids_of_line, key=hashed(key))]
        gone: list[str] = []
        successor = None
        for each in there:
            if id not in (None, each):
                continue
            ended = self._performer.do(partial(self._end, id=each, alive=None), repeats=True)
            if ended is not None:
                gone.append(each)
                (successor,) = ended
        for each in gone:
            self._wake(each)
        self.tell(key, successor)
        return len(gone)

    def _end(self, connection: Any, id: str, alive: bool | None) -> tuple[str | None] | None:
        """End a claim; return who is next in line, where that can be told, or None if there was no such claim."""
        for make in (claimlines.end, claimlines.drop):
            statement = self._performer.statement(connection, make, alive)
            if self._functions is not None:
                for (successor,) in returning(statement, successor=True).rows(connection, id=id):
                    return (successor,)
            elif statement.count(connection, id=id) == 1:
                return (None,)
        return None


def returning(statement: Statement, *columns: str, successor: bool) -> Statement:
    """Return a statement of PostgreSQL's that tells what it wrote, and who is next in line."""
    wanted = ", ".join((*columns, SUCCESSOR if successor else "NULL"))
    return statement._replace(words=f"{statement.words} RETURNING {wanted}")
