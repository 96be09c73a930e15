"""mysql://, mariadb:// or an SQLAlchemy engine: locks in a table of MySQL or MariaDB."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from interlock.core.claims import shown_value
from interlock.core.errors import InvalidArgument, install
from interlock.core.queue import ALL
from interlock.storekit._sync.step_queue import StepStore
from interlock.storekit.blocking import BlockingStore
from interlock.storekit.store import require_module

if TYPE_CHECKING:
    from interlock.stores.mysql.options import MysqlOptions

NEEDS = ("pymysql", f"Locks in MySQL and MariaDB need PyMySQL. Run: {install('mariadb')}")

__all__ = ["TABLE", "MysqlStore", "checked_table", "ddl", "from_client"]


class MysqlStore(BlockingStore):
    """A store in a table of MySQL or MariaDB.

    Args:
        options: how to connect.
    """

    features = ALL

    def __init__(self, options: "MysqlOptions") -> None:
        # Imported now, because a child forked during another thread's import would wait for that import forever.
        from interlock.storekit.compare_and_swap import SwapSteps
        from interlock.stores.mysql.lines import MysqlLines

        self._made: Callable[[], StepStore] = lambda: SwapSteps(MysqlLines(options))

    @classmethod
    def from_url(
        cls, url: SplitResult, password: Callable[[], str] | None = None, dial: Callable[[], object] | None = None
    ) -> "MysqlStore":
        """Connect to mysql://user:password@host/database.

        Args:
            url: the URL of the database.
            password: returns the password for the next connection.
            dial: returns a new connection of PyMySQL; the store closes it.
        """
        require_module(*NEEDS)
        from interlock.stores.mysql.options import options_of

        return MysqlStore(options_of(url, password, dial))

    def steps(self) -> StepStore:
        """See `BlockingStore.steps`."""
        return self._made()


def from_client(client: object, tasks: bool) -> MysqlStore:
    """Return the store in the database of a SQLAlchemy engine of the program.

    Args:
        client: an `Engine` or `AsyncEngine` of PyMySQL, aiomysql or asyncmy; PyMySQL connects with its arguments.
        tasks: ignored: the store connects by PyMySQL for threads and tasks.
    """
    require_module(*NEEDS)
    from interlock.stores.mysql.options import options_of_engine

    return MysqlStore(options_of_engine(client))


TABLE = "interlock_line"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DDL = """CREATE TABLE IF NOT EXISTS `{table}` (
  k BINARY(32) NOT NULL,
  line MEDIUMBLOB NOT NULL,
  version BIGINT NOT NULL,
  kept MEDIUMBLOB NULL,
  namespace VARBINARY(4000) NOT NULL,
  name VARBINARY(4000) NOT NULL,
  PRIMARY KEY (k)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""


def checked_table(table: str) -> str:
    """Return the name of a table.

    Raises:
        InvalidArgument: the name is not allowed.
    """
    if not _NAME.fullmatch(table):
        raise InvalidArgument(
            f"table must have 1 to 64 letters, digits and underscores, unlike {shown_value(table)}."
        )
    return table


def ddl(table: str = TABLE) -> str:
    """Return the SQL that creates the table if it does not exist.

    Args:
        table: the name of the table.

    Raises:
        InvalidArgument: the name is not allowed.
    """
    return DDL.format(table=checked_table(table))
