"""What both colours do with a connection around a statement: isolation, the table, and what a pooler hides."""

from collections.abc import Generator
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.sql.ddl import ddl
from interlock.stores.sql.problems import FUNCTION, ISOLATION, READ_ONLY, SCHEMA, TABLE, Refused, refusal
from interlock.stores.sql.statements import Statement

BEGIN = Statement("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE")
COMMIT = Statement("COMMIT")
ROLLBACK = Statement("ROLLBACK")
WHOSE = Statement("SELECT pg_backend_pid()")
MAKE_LOCK = Statement("SELECT pg_advisory_xact_lock(7308896216438961)")  # one process makes the table at a time
SILENCE = 10.0  # seconds without a message; then a listener tells itself something
RETRY = 1.0  # seconds between two attempts to listen
POOLED = 60.0  # the same where a pooler lies between, which takes messages to others
PING = "ping"  # what a listener tells itself
_RECOVERY = ("0A000", READ_ONLY)  # a replica knows no unlogged tables

Row = tuple[Any, ...]
Talk = Generator[Statement, list[Any], list[Any]]
"""Statements to perform one after the other on one connection; what it returns is the answer."""


class Transactions:
    """How the statements of one store are performed; what was learnt of its database.

    Args:
        options: of the store.
        where: which database, without a password.
    """

    def __init__(self, options: Any, where: str) -> None:
        self._options = options
        self._where = where
        self._explicit = False

    def perform(self, statement: Statement) -> Talk:
        """Perform one statement as a transaction of its own.

        A database, role or session may have another default isolation, or read only: then the transaction says
        what it is, in three statements.
        """
        made = False
        while True:
            explicit = self._explicit  # another thread may learn it meanwhile
            try:
                if explicit:
                    return (yield from self._explicitly(statement))
                return (yield statement)
            except Refused as error:
                if error.code in (ISOLATION, *_RECOVERY) and not explicit:
                    self._explicit = True
                elif error.code in (TABLE, FUNCTION, SCHEMA) and self._options.create and not made:
                    made = True
                    yield from self._make()
                else:
                    raise

    def _explicitly(self, statement: Statement) -> Talk:
        try:
            yield BEGIN
        except Refused as error:
            if error.code in _RECOVERY:
                raise refusal(READ_ONLY, str(error), self._where) from error
            raise
        return (yield from _to_the_end(statement))

    def _make(self) -> Talk:
        """Make the table and the functions."""
        yield BEGIN
        made = Statement(ddl(self._options.table, self._options.schema, self._options.grace))
        return (yield from _to_the_end(MAKE_LOCK, made))


def _to_the_end(*statements: Statement) -> Talk:
    """Perform statements in a transaction that has begun, and commit; return the rows of the last one."""
    rows: list[Any] = []
    try:
        for statement in statements:
            rows = yield statement
    except Refused:
        yield ROLLBACK
        raise
    yield COMMIT
    return rows


def in_transaction(where: str) -> StoreError:
    """Return the error of a new connection that is in a transaction, which would hide our claims from the others."""
    return StoreError(
        f"a new connection to {where} is in a transaction already: does a hook of the engine begin one?"
    )


def listening(channel: str) -> Statement:
    """Return the statement that listens to a channel."""
    return Statement(f'LISTEN "{channel}"')


def is_pooled(rows: Any, backend_pid: int) -> bool:
    """Tell whether a pooler lies between: it tells of another process of the server than the server itself.

    Args:
        rows: the answer to `WHOSE`.
        backend_pid: what the connection was told when it was made.
    """
    return int(rows[0][0]) != int(backend_pid)
