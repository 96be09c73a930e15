"""Performs statements on the table of claims; again, where others were in the way."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from django.db import DatabaseError

from interlock.core.errors import UnknownOutcome
from interlock.django import claimlines
from interlock.django.failures import NotReached, is_to_be_repeated
from interlock.django.pool import WAIT_LIMIT as FREE_CONNECTION
from interlock.django.pool import Pool
from interlock.django.statements import Statement, compiled

RETRY_LIMIT = 2.0  # seconds that a statement is tried again which the database does not do because of others


class Performer:
    """What performs the statements of one store.

    Args:
        alias: of the database.
        most: connections of this process to the database.
    """

    def __init__(self, alias: str, most: int) -> None:
        self.pool = Pool(alias, most)
        self._statements: dict[Any, Statement] = {}

    def do(self, step: Callable[[Any], Any], *, wait_limit: float = FREE_CONNECTION, repeats: bool = False) -> Any:
        """Perform `step` with a connection; again if the database did not do it because of others.

        Args:
            step: what to do.
            wait_limit: seconds to wait for a connection.
            repeats: True if it may be done twice, so that it is done again where a connection breaks.
        """
        started = time.monotonic()
        broke: UnknownOutcome | None = None
        while True:
            in_time = time.monotonic() - started < RETRY_LIMIT
            try:
                with self.pool.connection(wait_limit) as connection:
                    try:
                        return step(connection)
                    except DatabaseError as error:
                        if not in_time or not is_to_be_repeated(error):
                            raise
            except UnknownOutcome as error:
                if not repeats or not in_time:
                    raise
                broke = error
            except NotReached as error:
                if broke is None:
                    raise
                if not in_time:
                    raise broke from error
            time.sleep(random.uniform(0.001, 0.005))

    def statement(self, connection: Any, make: Callable[..., Any], *args: Any) -> Statement:
        """Return a statement, made once."""
        statement = self._statements.get((make, *args))
        if statement is None:
            statement = self._statements[(make, *args)] = compiled(make(*args), connection)
        return statement

    def count(
        self, make: Callable[..., Any], *args: Any, wait_limit: float = FREE_CONNECTION, repeats: bool = False,
        **given: Any,
    ) -> int:  # fmt: skip
        """Perform a statement; return how many rows it wrote."""

        def step(connection: Any) -> int:
            return self.statement(connection, make, *args).count(connection, **given)

        return int(self.do(step, wait_limit=wait_limit, repeats=repeats))

    def rows(self, make: Callable[..., Any], *args: Any, wait_limit: float = FREE_CONNECTION, **given: Any) -> Any:
        """Perform a statement that only reads; return its rows."""

        def step(connection: Any) -> list[Any]:
            return self.statement(connection, make, *args).rows(connection, **given)

        return self.do(step, wait_limit=wait_limit, repeats=True)


@contextmanager
def unlocked(connection: Any, ids: Sequence[str]) -> Iterator[dict[str, int]]:
    """Have the records to oneself that no other transaction has locked; yield when their leases end.

    A claim is locked from the check before a commit to the end of that commit, however long it takes.  Where a
    database can't skip such rows, all are yielded, and a statement on them waits.
    """
    skips = connection.features.has_select_for_update_skip_locked
    with in_transaction(connection) if skips else nullcontext():
        query = compiled(claimlines.leases(ids, skips), connection)
        yield {id: until for id, until, _ in query.rows(connection)}


@contextmanager
def in_transaction(connection: Any) -> Iterator[None]:
    """A transaction on a connection of the store's own, which is in autocommit before and after."""
    connection.set_autocommit(False)
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise
    finally:
        connection.set_autocommit(True)
