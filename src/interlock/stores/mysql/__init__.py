"""mysql://, mariadb:// or an SQLAlchemy engine: locks in a table of MySQL or MariaDB."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import described
from interlock.stores.base import BaseStore, Store

INSTALL = "locks in MySQL and MariaDB need PyMySQL: pip install 'interlock[mariadb]'"

__all__ = ["MysqlStores", "from_client"]


class MysqlStores(BaseStore):
    """What makes stores of URLs."""

    @classmethod
    def from_url(cls, url: SplitResult) -> Store:
        """Connect threads or asyncio tasks to a database."""
        _installed()
        from interlock.stores.mysql.factory import UrlFactory
        from interlock.stores.mysql.store import MysqlStore

        return MysqlStore(UrlFactory(url))


def _installed() -> None:
    try:
        import pymysql  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise StoreError(f"{INSTALL} ({error})") from error


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store in the database of an SQLAlchemy engine that the program has already.

    Args:
        client: an `Engine` of PyMySQL, also for tasks; or for tasks an `AsyncEngine` of aiomysql or asyncmy, with
            whose arguments PyMySQL connects.  It stays the program's, and open.
        tasks: True if asyncio tasks will use the store.
    """
    from sqlalchemy.engine import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    if not isinstance(client, (Engine, AsyncEngine) if tasks else Engine):
        raise InvalidArgument(
            f"{described(client)} is no Engine: {'aconnect' if tasks else 'connect'}() takes the engine, as locks "
            f"are taken on connections of their own: a claim inside a transaction is seen by nobody"
        )
    drivers = ("aiomysql", "asyncmy") if isinstance(client, AsyncEngine) else ("pymysql",)
    if client.dialect.driver not in drivers:
        raise InvalidArgument(
            f"locks need an engine of mysql+{' or '.join(drivers)}://, not of "
            f"{client.dialect.name}+{client.dialect.driver}://: give interlock the URL mysql://…"
        )
    _installed()
    from interlock.stores.mysql.factory import EngineFactory
    from interlock.stores.mysql.store import MysqlStore

    return MysqlStore(EngineFactory(client))
