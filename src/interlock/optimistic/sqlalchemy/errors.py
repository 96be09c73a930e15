"""What the errors of databases mean for a transaction."""

from typing import NoReturn

from sqlalchemy.exc import DBAPIError

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.optimistic.errors import TryAgain

PASSING_STATES = {"40001", "40P01"}  # serialization failure, deadlock
PASSING_NUMBERS = {1205, 1213, 1020}  # MySQL and MariaDB: lock wait time-out, deadlock, record has changed
NO_SAVEPOINT = 1305  # it has gone
PASSING_SQLITE = "database is locked"


def passing(error: DBAPIError) -> bool:
    """Tell whether the database undid the transaction for the sake of others, so that a new try may do."""
    plain = error.orig
    state = getattr(plain, "sqlstate", None) or getattr(plain, "pgcode", None)
    args = getattr(plain, "args", ())
    number = args[0] if args and isinstance(args[0], int) else None
    if number == NO_SAVEPOINT and isinstance(error.__context__, DBAPIError):
        return passing(error.__context__)  # with the transaction, and what broke that is why
    return state in PASSING_STATES or number in PASSING_NUMBERS or PASSING_SQLITE in str(plain)


def raise_translated(error: DBAPIError, at_commit: bool = False) -> NoReturn:
    """Raise what `transact` promises for an error of the database.

    Args:
        error: what SQLAlchemy raised.
        at_commit: True if it was the commit itself.

    Raises:
        TryAgain: it may pass.
        UnknownOutcome: no answer to the commit came.
        StoreError: the database can't be asked.
        DBAPIError: as it is: the statement is wrong, or refused.
    """
    if at_commit and error.connection_invalidated:
        raise UnknownOutcome(f"no answer to the commit came: it may have been done, or not: {error.orig}") from error
    if passing(error):
        raise TryAgain(f"the database has undone the transaction: {error.orig}") from error
    if error.connection_invalidated:
        raise StoreError(f"the connection to the database failed, nothing was changed: {error.orig}") from error
    raise error
