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
        client: an `Engine` of PyMySQL, also for tasks; it stays the program's, and open.
        tasks: True if asyncio tasks will use the store.
    """
    from sqlalchemy.engine import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    if isinstance(client, AsyncEngine):
        raise InvalidArgument(
            f"locks in MySQL are taken by PyMySQL, for tasks too, and this is an engine of {client.dialect.driver}: "
            f"give {'aconnect' if tasks else 'connect'}() create_engine('mysql+pymysql://…'), or the URL mysql://…"
        )
    if not isinstance(client, Engine):
        raise InvalidArgument(
            f"{described(client)} is no Engine: {'aconnect' if tasks else 'connect'}() takes the engine, as locks "
            f"are taken on connections of their own: a claim inside a transaction is seen by nobody"
        )
    if client.dialect.driver != "pymysql":
        raise InvalidArgument(
            f"locks need an engine of mysql+pymysql://, not of {client.dialect.name}+{client.dialect.driver}://"
        )
    _installed()
    from interlock.stores.mysql.factory import EngineFactory
    from interlock.stores.mysql.store import MysqlStore

    return MysqlStore(EngineFactory(client))
