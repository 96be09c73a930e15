# Generated from _async/sqlalchemy.py by tools/unasync.py; change that one.
"""SQLAlchemy sessions as a backend: a new session for each try."""

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from interlock.core.errors import InvalidArgument
from interlock.optimistic.sqlalchemy import Reads, RowChanged, called_with, passing, raise_translated

CHANGED = (RowChanged, StaleDataError)


class SessionAttempt:
    """One try; see `interlock.optimistic.Attempt`.

    Args:
        session: the session of this try only.
    """

    def __init__(self, session: Any) -> None:
        self.transaction = session
        self._reads = Reads(getattr(session, "sync_session", session))

    @property
    def keys(self) -> Sequence[Any]:
        """The rows that were read, for messages."""
        return self._reads.keys

    def watch(self, keys: Sequence[object]) -> None:
        """Refuse keys, because all rows that were read are watched."""
        raise InvalidArgument("Keys are not accepted: every row that the function reads by its session is watched.")

    def commit(self) -> bool:
        """Commit if the rows that were read are unchanged."""
        try:
            if not called_with(self.transaction, self._verify_and_flush):
                return False
        except DBAPIError as error:
            raise_translated(error)
        try:
            self.transaction.commit()
        except DBAPIError as error:
            raise_translated(error, at_commit=True)
        return True

    def _verify_and_flush(self, session: Session) -> bool:
        try:
            self._reads.verify()
            session.flush()
        except CHANGED:
            return False
        return True

    def __enter__(self) -> "SessionAttempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.transaction.close()
        if isinstance(error, DBAPIError) and passing(error):
            raise_translated(error)
        return isinstance(error, CHANGED)  # then another try follows
