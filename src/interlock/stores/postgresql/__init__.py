"""postgresql:// or an SQLAlchemy engine: locks in a PostgreSQL database, folded into one statement a step."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.base import BaseStore, Store
from interlock.stores.sql.engines import engine_of

ASYNCPG = "asyncpg"
INSTALL = "locks in PostgreSQL need psycopg 3: pip install 'interlock[sql]'"

__all__ = ["PostgresStores", "from_client"]


class PostgresStores(BaseStore):
    """What makes stores of URLs."""

    @classmethod
    def from_url(cls, url: SplitResult) -> Store:
        """Connect threads to a database."""
        _installed()
        from interlock.stores.postgresql.factory import UrlFactory
        from interlock.stores.postgresql.options import options_of
        from interlock.stores.postgresql.stores import PostgresStore

        options, left = options_of(url)
        return PostgresStore(UrlFactory(left, options))

    @classmethod
    def from_url_for_tasks(cls, url: SplitResult) -> Store:
        """Connect asyncio tasks to a database."""
        _installed()
        from interlock.stores.postgresql.factory import UrlFactory
        from interlock.stores.postgresql.options import options_of

        options, left = options_of(url)
        return _for_tasks(UrlFactory(left, options))


def _installed() -> None:
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise StoreError(f"{INSTALL} ({error})") from error


def _for_tasks(factory: Any) -> Store:
    from interlock.stores.postgresql.alistener import TaskListener
    from interlock.stores.postgresql.apool import AsyncPool
    from interlock.stores.postgresql.stores import AsyncPostgresStore
    from interlock.stores.sql.statements import Texts

    texts = Texts(factory.options.table, factory.options.schema)
    return AsyncPostgresStore(AsyncPool(factory), TaskListener(factory), texts)


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store in the database of an SQLAlchemy engine that the program has already.

    Args:
        client: an `Engine` of psycopg 3, or for tasks an `AsyncEngine` of psycopg 3 or asyncpg; it stays the
            program's, and open.
        tasks: True if asyncio tasks will use the store.
    """
    engine = engine_of(client, tasks)
    driver = engine.dialect.driver
    if driver not in (("psycopg_async", "psycopg", ASYNCPG) if tasks else ("psycopg",)):
        drivers = "psycopg:// or postgresql+asyncpg" if tasks else "psycopg"
        raise InvalidArgument(
            f"locks need an engine of postgresql+{drivers}://, not {engine.dialect.name}+{driver}://: "
            f"give interlock the URL, and it connects by psycopg, beside the driver of the program"
        )
    if driver != ASYNCPG:
        _installed()
    from interlock.stores.postgresql.engines import EngineFactory
    from interlock.stores.postgresql.options import options_of_engine

    factory = EngineFactory(client, options_of_engine(client))
    if tasks:
        return _for_tasks(factory)
    from interlock.stores.postgresql.stores import PostgresStore

    return PostgresStore(factory)
