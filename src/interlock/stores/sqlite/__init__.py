"""sqlite:// or an SQLAlchemy engine: locks between the processes of one machine, in a file of SQLite."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described
from interlock.stores.base import BaseStore, Store
from interlock.stores.sql.engines import engine_of

__all__ = ["SqliteStores", "from_client"]


class SqliteStores(BaseStore):
    """What makes stores of URLs."""

    @classmethod
    def from_url(cls, url: SplitResult) -> Store:
        """Open the file that a URL names, for threads."""
        from interlock.stores.sqlite.options import options_of
        from interlock.stores.sqlite.store import ThreadSqliteStore

        return ThreadSqliteStore(options_of(url))

    @classmethod
    def from_url_for_tasks(cls, url: SplitResult) -> Store:
        """Open the file that a URL names, for asyncio tasks."""
        from interlock.stores.sqlite.options import options_of
        from interlock.stores.sqlite.store import SqliteStore

        return SqliteStore(options_of(url))


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store in a file beside the database of an SQLAlchemy engine; the engine itself is not used.

    Args:
        client: an `Engine`, or for tasks an `AsyncEngine`, of sqlite.
        tasks: True if asyncio tasks will use the store.

    Raises:
        InvalidArgument: its database is no file, or it is an engine of the other colour.
        StoreError: the file can't be used.
    """
    engine = engine_of(client, tasks)
    from interlock.stores.sqlite.options import options_beside
    from interlock.stores.sqlite.store import SqliteStore, ThreadSqliteStore

    if engine.dialect.driver not in ("pysqlite", "aiosqlite"):
        raise InvalidArgument(f"locks need an engine of sqlite3 or aiosqlite, not {described(engine)}")
    options = options_beside(engine)
    return SqliteStore(options) if tasks else ThreadSqliteStore(options)
