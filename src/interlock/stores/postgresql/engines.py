"""How to connect as an SQLAlchemy engine does that the program has already, by the driver that it has."""

import math
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.postgresql import ASYNCPG
from interlock.stores.postgresql.options import Options
from interlock.stores.sql.engines import detached, limit, place_of_engine
from interlock.stores.sql.problems import FULL, Unreachable, advice, refusal

_LASTING = {"28P01": "password authentication failed", "28000": "pg_hba.conf", "3D000": "does not exist"}
_FULL = ("too many clients", "too many connections for", "remaining connection slots", "no more connections allowed")
"""What servers say, and last PgBouncer."""


class EngineFactory:
    """What makes connections as an SQLAlchemy engine does: with its arguments, creator and hooks, not from its pool.

    Args:
        engine: an `Engine` of psycopg 3, or for tasks an `AsyncEngine` of psycopg 3 or asyncpg; it stays the
            program's.
        options: where the lines are, and how many connections.
    """

    def __init__(self, engine: Any, options: Options) -> None:
        self._engine = engine
        self.where = place_of_engine(engine)
        self.options = options
        self.io_timeout = options.io_timeout
        name = "timeout" if engine.dialect.driver == ASYNCPG else "connect_timeout"
        self._limits = {name: max(2, math.ceil(self.io_timeout))}
        limit(getattr(engine, "sync_engine", engine))

    def dial(self) -> Any:
        """Return a new connection of psycopg, for a thread.

        Raises:
            Unreachable: nobody answers, or not now.
            Refused: the database does not let us in.
        """
        try:
            return detached(self._engine, self._limits)
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error

    async def aconnect(self) -> Any:
        """Return a new connection for a task.

        Raises:
            StoreError: as `dial`; or it can't be used for locks.
        """
        from sqlalchemy.util import greenlet_spawn

        try:
            connection = await greenlet_spawn(detached, self._engine.sync_engine, self._limits)
        except Exception as error:
            raise not_connected(getattr(error, "orig", None) or error, self.where) from error
        if self._engine.dialect.driver == ASYNCPG:
            from interlock.stores.postgresql.asyncpg_connection import AsyncpgConnection

            return AsyncpgConnection(connection, self.where)
        from interlock.stores.postgresql.aconnection import AsyncConnection

        return AsyncConnection(connection, self.where)


def not_connected(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means; libpq tells by words only."""
    text = str(error).strip()
    code = str(getattr(error, "sqlstate", None) or "")
    for each, words in _LASTING.items():
        if words in text and "FATAL" in text:
            code = code or each
    if any(words in text for words in _FULL):
        code = FULL
    if code and not code.startswith("08"):
        return refusal(code, text, where)
    return Unreachable(f"{where} can't be reached: {text or type(error).__name__}; {advice('')}")
