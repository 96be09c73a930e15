"""mysql://, mariadb:// or an SQLAlchemy engine: locks in a table of MySQL or MariaDB."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.base import BaseStore, Store
from interlock.stores.sql.engines import engine_of

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
    engine = engine_of(client, tasks, either=True)
    dialect = engine.dialect
    drivers = ("pymysql",) if engine is client else ("aiomysql", "asyncmy")
    if dialect.driver not in drivers:
        raise InvalidArgument(
            f"locks need an engine of mysql+{' or '.join(drivers)}://, not of {dialect.name}+{dialect.driver}://: "
            f"give interlock the URL mysql://…"
        )
    _installed()
    from interlock.stores.mysql.factory import EngineFactory
    from interlock.stores.mysql.store import MysqlStore

    return MysqlStore(EngineFactory(client))
