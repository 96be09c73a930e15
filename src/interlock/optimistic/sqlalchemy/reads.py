"""What a session has read, and whether it is still so.

A row is compared by its version column if the mapper has one (`version_id_col`), else by all values that were read.
The rows are locked first and compared in Python, as the driver gives them: in a WHERE, collations, floats and JSON
would make other values equal or equal ones different.
"""

from copy import deepcopy
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, event, inspect, select
from sqlalchemy.orm import InstanceState, Session

from interlock.optimistic.errors import TryAgain

IMMUTABLE = (str, bytes, int, float, bool, type(None))


class RowChanged(TryAgain):
    """Somebody has changed or removed a row that was read."""


class Seen(NamedTuple):
    """A row as it was when it was read: its state in the session, and its values by column."""

    state: InstanceState[Any]
    values: dict[Any, Any]


class Reads:
    """What one session has loaded; it is told by the session's events.

    Args:
        session: the session of one try.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: dict[Any, Seen] = {}
        event.listen(session, "loaded_as_persistent", self._loaded)
        event.listen(session, "before_flush", self._before_flush)

    @property
    def keys(self) -> list[str]:
        """What was read, for messages."""
        return [f"{key[0].__name__} {key[1]!r}" for key in self._seen]

    def verify(self) -> None:
        """Lock all that was read, and compare it.

        Raises:
            RowChanged: somebody has changed some of it.
        """
        self._verify(list(self._seen))

    def _loaded(self, session: Session, instance: Any) -> None:
        state = inspect(instance)
        mapper = state.mapper
        columns = [mapper.version_id_col] if mapper.version_id_col is not None else mapper.columns
        values = {}
        for column in columns:
            key = mapper.get_property_by_column(column).key
            if key in state.dict:  # else it is deferred, and was not read
                values[column] = _kept(state.dict[key])
        self._seen[state.key] = Seen(state, values)

    def _before_flush(self, session: Session, *_: Any) -> None:
        touched = [inspect(each).key for each in (*session.dirty, *session.deleted)]
        self._verify([key for key in touched if key in self._seen])

    def _verify(self, keys: list[Any]) -> None:
        begin_writing(self._session.connection())
        # In one order for all, so that two who verify do not wait for each other.
        for key in sorted(keys, key=lambda key: (key[0].__name__, repr(key[1]))):
            # From now on the row is locked, and what changes it is this transaction.
            seen = self._seen.pop(key)
            if not _unchanged(self._session, key, seen):
                raise RowChanged(f"{key[0].__name__} {key[1]!r} was changed by somebody else")


def _unchanged(session: Session, key: Any, seen: Seen) -> bool:
    mapper = seen.state.mapper
    columns = list(seen.values)
    query = select(*columns).select_from(mapper.selectable)
    query = query.where(*(column == value for column, value in zip(mapper.primary_key, key[1], strict=True)))
    found = session.connection().execute(query.with_for_update()).one_or_none()
    return found is not None and all(
        _same(column, found[index], seen.values[column]) for index, column in enumerate(columns)
    )


def _same(column: Column[Any], now: Any, then: Any) -> bool:
    return bool(column.type.compare_values(now, then))


def _kept(value: Any) -> Any:
    return value if isinstance(value, IMMUTABLE) else deepcopy(value)


def begin_writing(connection: Connection) -> None:
    """On SQLite, which has no locks on rows, take the lock of all writers: nothing changes from now on."""
    if connection.dialect.name == "sqlite":
        plain = connection.connection.driver_connection
        if not getattr(plain, "in_transaction", False):
            connection.exec_driver_sql("BEGIN IMMEDIATE")
