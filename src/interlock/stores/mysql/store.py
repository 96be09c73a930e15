"""The store in MySQL or MariaDB, for both colours: tasks ask by threads of its own."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

from interlock.core.claims import Check
from interlock.runtime.sync import run
from interlock.stores.mysql.checks import examine
from interlock.stores.mysql.connection import Pool
from interlock.stores.sql.datagrams import DatagramListener, DatagramQueue
from interlock.stores.sql.mysql import Statements
from interlock.stores.sql.mysqlsteps import MysqlTexts


class _Server(Pool):
    """The connections of one store, for both colours."""

    def _start_afresh(self) -> None:
        super()._start_afresh()
        self._executor = ThreadPoolExecutor(self._most, thread_name_prefix="interlock-mysql")
        self._renewing = ThreadPoolExecutor(1, thread_name_prefix="interlock-mysql-renews")

    async def aask(self, statement: Statements) -> list[Any]:
        """As `ask`."""
        from interlock.runtime.offload import offload  # only programs with an event loop load asyncio

        executor = self._renewing if statement.reserved else self._executor
        deadline = monotonic() + self.factory.io_timeout  # also of the time in line for a thread
        return await offload(executor, partial(self.ask, statement, deadline))

    def close(self) -> None:
        """As `BoundedPool.close`."""
        super().close()
        for executor in (self._executor, self._renewing):
            executor.shutdown(wait=False)


class MysqlStore(DatagramQueue):
    """A store in a table of MySQL or MariaDB.

    Args:
        factory: how to connect.
    """

    _hears_all = False  # other hosts can't tell

    def __init__(self, factory: Any) -> None:
        super().__init__(_Server(factory), DatagramListener(), MysqlTexts(factory.options.table))

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        self._server.rest()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return run(examine(self._server, self._texts))
