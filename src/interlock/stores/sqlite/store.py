"""sqlite:// - locks in a SQLite file, for threads and for asyncio tasks."""

from typing import TYPE_CHECKING, Any, cast

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.runtime.sync import ThreadEvent, run
from interlock.stores.sql.queue import SqlQueue
from interlock.stores.sqlite.checks import examine
from interlock.stores.sqlite.database import database_of, give_back
from interlock.stores.sqlite.line import Rows, Step, Steps
from interlock.stores.sqlite.listener import DatagramListener, notify
from interlock.stores.sqlite.options import Options

if TYPE_CHECKING:
    from interlock.runtime.aio import TaskEvent


class _Server:
    """What performs the steps of one store."""

    def __init__(self, options: Options) -> None:
        self.database = database_of(options)
        self._closed = False

    def ask(self, step: Step) -> Rows:
        """Do a step."""
        self._check_open()
        return self.database.perform(step) if step.transaction else step.function(None, *step.args)

    async def aask(self, step: Step) -> Rows:
        """Do a step without blocking the loop."""
        self._check_open()
        return await self.database.aperform(step) if step.transaction else step.function(None, *step.args)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("this connection was closed: connect again")

    def reset(self) -> None:
        """In a forked child: the database itself starts afresh."""

    def close(self) -> None:
        """Give the database back."""
        if not self._closed:
            self._closed = True
            give_back(self.database)


class SqliteStore(SqlQueue):
    """A store in a SQLite file.

    Args:
        options: which file, and how it is written.

    Raises:
        StoreError: it can't be used.
    """

    def __init__(self, options: Options) -> None:
        server = _Server(options)
        try:
            super().__init__(server, DatagramListener(), cast(Any, Steps(notify)))
            server.ask(Step(lambda execute: []))
        except BaseException:
            server.close()
            raise

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> "TaskEvent":
        """Return a wake-up for the calling task."""
        from interlock.runtime.aio import TaskEvent  # only programs with an event loop load asyncio

        return TaskEvent()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return run(examine(self._server, self._server.database.options))
