"""sqlite:// - locks in a SQLite file, for threads and for asyncio tasks."""

from typing import Any, cast

from interlock.core.claims import USING, Check, Claim
from interlock.core.errors import StoreError
from interlock.core.queue import OCCUPIED, REFUSED, EnterResult
from interlock.runtime.sync import run
from interlock.stores.sql.datagrams import DatagramListener, DatagramQueue
from interlock.stores.sql.problems import Passing
from interlock.stores.sql.queue import SWEEP_EVERY
from interlock.stores.sqlite.checks import examine
from interlock.stores.sqlite.databases import database_of, give_back
from interlock.stores.sqlite.line import Rows, SqliteStep, SqliteSteps
from interlock.stores.sqlite.options import Options
from interlock.stores.sqlite.problems import others_are_in_the_way


class _Server:
    """What performs the steps of one store."""

    def __init__(self, options: Options) -> None:
        self.database = database_of(options)
        self._closed = False

    def open(self, patient: bool) -> None:
        """Open the file, so that what is wrong with it is told at once; if others are in the way, later perhaps.

        Args:
            patient: False to wait for nobody.
        """
        try:
            self.database.perform(SqliteStep(lambda execute, clock: []), None if patient else 0.0)
        except Passing as error:
            if patient or not others_are_in_the_way(error):
                raise

    def ask(self, step: SqliteStep) -> Rows:
        """Do a step."""
        self._check_open()
        return self.database.perform(step)

    async def aask(self, step: SqliteStep) -> Rows:
        """Do a step without blocking the loop."""
        self._check_open()
        return await self.database.aperform(step)

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


class SqliteStore(DatagramQueue):
    """A store in a SQLite file, for tasks: to make one does not wait for others who write.

    Args:
        options: which file.

    Raises:
        StoreError: it can't be used.
    """

    _patient = False

    def __init__(self, options: Options) -> None:
        server = _Server(options)
        try:
            self._steps = SqliteSteps()
            super().__init__(server, DatagramListener(), cast(Any, self._steps))
            server.open(self._patient)
        except BaseException:
            server.close()
            raise

    def doctor(self) -> list[Check]:
        """As `Store.doctor`."""
        return run(examine(self._server, self._server.database.options))


class ThreadSqliteStore(SqliteStore):
    """A store for threads, with a fast path: it blocks."""

    _patient = True

    def enter_now(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> EnterResult:
        """As `enter` for a first try, without a generator around it."""
        try:
            state, fence, _, promotions = self._server.ask(self._steps.enter(claim, "try", ""))[0]
        except StoreError as error:
            return self._failed(claim, error, wait)
        self._answered = True
        if promotions:
            run(self._tell(promotions))
        if state == USING:
            return EnterResult("using", fence)
        return OCCUPIED if wait else REFUSED

    def leave_now(self, claim: Claim) -> bool:
        """As `leave`, without a generator around it."""
        self._waiters.remove(claim.id)
        removed, promotions = self._server.ask(self._steps.leave(claim.spec.key, claim.id))[0]
        if promotions:
            run(self._tell(promotions))
        if next(self._releases) % SWEEP_EVERY == 0:
            run(self._sweep())
        return bool(removed)
