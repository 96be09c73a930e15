"""postgresql:// - locks in a PostgreSQL database, for threads and for asyncio tasks."""

import asyncio
from typing import Any

from interlock.core.claims import Check
from interlock.core.errors import StoreError
from interlock.runtime.aio import TaskEvent, arun
from interlock.runtime.sync import ThreadEvent, run
from interlock.stores.postgresql.checks import examine
from interlock.stores.sql.queue import SqlQueue
from interlock.stores.sql.statements import Texts


class PostgresStore(SqlQueue):
    """A store in a PostgreSQL database, for threads.

    Args:
        factory: how to connect.
    """

    def __init__(self, factory: Any) -> None:
        from interlock.stores.postgresql.listener import ThreadListener
        from interlock.stores.postgresql.pool import Pool

        texts = Texts(factory.options.table, factory.options.schema)
        super().__init__(Pool(factory), ThreadListener(factory), texts)

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> Any:
        """There is none: a store for threads would block the loop."""
        raise StoreError("this store is for threads: use interlock.aconnect()")

    def rest(self) -> None:
        """Close the connections that nobody uses, but for one."""
        self._server.rest()

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return run(examine(self._server, self._texts))


class AsyncPostgresStore(SqlQueue):
    """A store in a PostgreSQL database, for asyncio tasks.

    Args:
        server: performs statements.
        listener: hears promotions.
        texts: the statements.
    """

    def thread_wakeup(self) -> Any:
        """There is none: this store's connections belong to event loops."""
        raise StoreError("this store is for asyncio tasks: use interlock.connect()")

    def task_wakeup(self) -> TaskEvent:
        """Return a wake-up for the calling task."""
        return TaskEvent()

    def doctor(self) -> list[Check]:
        """There is none: `adoctor` examines."""
        raise StoreError("this store is for asyncio tasks: await adoctor()")

    async def adoctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return await arun(examine(self._server, self._texts))

    async def leave_loop(self) -> None:
        """Close the connections of the running loop, which ends."""
        self._listener.leave_loop()
        self._server.leave_loop()

    async def aclose(self) -> None:
        """Close all connections."""
        self.close()
        self._listener.leave_loop()
        await asyncio.sleep(0)
