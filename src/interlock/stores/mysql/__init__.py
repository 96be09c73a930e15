"""mysql://, mariadb:// or an SQLAlchemy engine: locks in a table of MySQL or MariaDB."""

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

from interlock.core.errors import StoreError
from interlock.stores.plain import PlainStore

INSTALL = "locks in MySQL and MariaDB need PyMySQL: pip install 'interlock[mariadb]'"

__all__ = ["MysqlStore", "from_client"]


class MysqlStore(PlainStore):
    """A store in a table of MySQL or MariaDB.

    Args:
        options: how to connect.
    """

    def __init__(self, options: Any) -> None:
        # Now, not at first use: a child forked while another thread imports would wait for that import for ever.
        from interlock.stores._sync.swap import SwapSteps
        from interlock.stores.mysql.lines import MysqlLines

        self._made: Callable[[], Any] = lambda: SwapSteps(MysqlLines(options))

    @classmethod
    def from_url(
        cls, url: SplitResult, password: Callable[[], str] | None = None, dial: Callable[[], object] | None = None
    ) -> "MysqlStore":
        """Connect to mysql://user:password@host/database.

        Args:
            url: of the database.
            password: returns the password for the next connection.
            dial: returns a new connection of PyMySQL, which becomes ours.
        """
        _check_installed()
        from interlock.stores.mysql.options import options_of

        return MysqlStore(options_of(url, password, dial))

    def steps(self) -> Any:
        """As `PlainStore.steps`."""
        return self._made()


def _check_installed() -> None:
    try:
        import pymysql  # type: ignore[import-untyped]  # noqa: F401
    except ImportError as error:
        raise StoreError(f"{INSTALL} ({error})") from error


def from_client(client: object, tasks: bool) -> MysqlStore:
    """Return the store in the database of an SQLAlchemy engine that the program has already.

    Args:
        client: an `Engine` or `AsyncEngine` of PyMySQL, aiomysql or asyncmy, with whose arguments PyMySQL connects.
        tasks: either will do.
    """
    _check_installed()
    from interlock.stores.mysql.options import options_of_engine

    return MysqlStore(options_of_engine(client))
