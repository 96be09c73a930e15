"""One session with MariaDB, as tasks use it: PyMySQL, which blocks, in a thread that works meanwhile."""

from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.runtime import _aio as rt
from interlock.runtime._threads import ready
from interlock.stores.advisory import statements as sql
from interlock.stores.advisory.dialling import dialled, set_read_timeout
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal, Rows

LEAP = 1_000_000  # fences


class AsyncMariaSession(AdvisorySession):
    """A session with MariaDB.

    Args:
        options: what the URL says.
        mutex: of the room.
    """

    # -- opening ----------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and see that these locks can be kept here.

        Raises:
            StoreError: the server can't be reached, or its locks are not for all.
        """
        await rt.offload(self._connect)
        sequence = self.options.sequence
        try:
            await self._check()
            ((pid,),) = await self.rows(sql.MARIA_PING)
            self.pid, self.born = int(str(pid)), await self._find_born()
            await self.rows(sql.MARIA_SETTINGS)
            await self.rows(sql.MARIA_WRITES)
            try:
                await self.rows(f"SELECT LASTVAL({sequence})")
            except Refusal:
                await self._make()
            try:
                await self._leap()
            except Refusal as error:
                if error.state != sql.LOST_ROW:
                    raise
                await self.rows(f"DROP SEQUENCE IF EXISTS {sequence}")  # another may be at it
                await self._make()
                await self._leap()
        except Refusal as error:
            raise StoreError(f"MariaDB refuses to be used for locks: {error}") from error

    def _connect(self) -> None:
        self._client, self.fd = dialled(urlsplit(self.options.conninfo), self.options.torn)
        self._cursor = self._client.cursor()
        self.pid = self.reported_pid = self._client.thread_id()

    async def _check(self) -> None:
        ((version,),) = await self.rows("SELECT VERSION()")
        if "vitess" in str(version).lower():
            raise StoreError(f"Vitess spreads sessions over servers, and GET_LOCK with them: {sql.TABLE_STRATEGY}")
        if "mariadb" not in str(version).lower():
            raise StoreError(
                f"{version} is not MariaDB, and these locks are not tested with it: {sql.TABLE_STRATEGY}"
            )
        if await self.rows("SHOW VARIABLES LIKE 'wsrep_on'") in ([("wsrep_on", "ON")], [("wsrep_on", "1")]):
            raise StoreError(f"in a Galera cluster GET_LOCK is known to one node only: {sql.TABLE_STRATEGY}")
        if await self.rows("SELECT @@global.read_only") not in ([("0",)], [("OFF",)]):
            raise StoreError("this server is read-only, as replicas are, and others lock elsewhere: use the primary")

    async def _make(self) -> None:
        # Never from 1: a session that has set an older one meanwhile sets this one no more.
        sequence = self.options.sequence
        make = f"CREATE SEQUENCE IF NOT EXISTS {sequence} START WITH {await self._number(sql.MARIA_NOW)}"
        try:
            await self.rows(make)
        except Refusal as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an administrator do "
                f"it: {make}; GRANT SELECT, INSERT ON {sequence} TO your_user"
            ) from error

    async def _leap(self) -> None:
        """Set the sequence beyond what it gave out before a crash of the server and may have forgotten.

        What it gives out is not on the disk yet.  No session outlives a crash, so whoever takes a number after it has
        been here.  Fences are set to the server's clock, in microseconds, which nobody takes numbers faster than;
        SETVAL never sets them back.  Where the clock was set back they leap over what a second can have given out.
        """
        sequence, now = self.options.sequence, await self._number(sql.MARIA_NOW)
        if await self.rows(f"SELECT SETVAL({sequence}, {now})") != [(None,)]:
            return
        ahead = await self._number(f"SELECT NEXTVAL({sequence})")
        if ahead - now > LEAP:  # else somebody has just set it
            await self.rows(f"SELECT SETVAL({sequence}, {ahead + LEAP})")

    async def _find_born(self) -> tuple[int, str]:
        """Return when the server started, in seconds, rounded, and which one it is."""
        ((started, server),) = await self.rows(sql.MARIA_BORN)
        return int(str(started)), str(server)

    async def _number(self, text: str) -> int:
        ((found,),) = await self.rows(text)
        return int(str(found))

    # -- locks ------------------------------------------------------------------------------------------

    async def attempt(self, key: int, shared: bool) -> int | None:
        """Take the lock if it is free; return the fence, or None."""
        sequence = self.options.sequence
        ((fence,),) = await self.rows(
            f"SELECT IF(GET_LOCK('{sql.maria_name(key)}', 0) = 1, NEXTVAL({sequence}), NULL)"
        )
        return fence if fence is None else int(fence)

    async def wait(self, key: int, shared: bool) -> int | None:
        """Wait for the lock; return the fence, or None if the wait was broken off: the lock may be there even so.

        KILL QUERY, a time limit and a deadlock answer a wait with NULL or an error.  The fence is asked for
        afterwards: what waits and uses a table holds up a backup, and that all who write.
        """
        try:
            found = await self.rows(f"SELECT GET_LOCK('{sql.maria_name(key)}', {sql.FOREVER})", waits=True)
            return await self._number(f"SELECT NEXTVAL({self.options.sequence})") if found == [("1",)] else None
        except Refusal:
            return None

    async def give_back(self, key: int, shared: bool) -> None:
        """Give the lock back, if it is there."""
        await self.rows(f"SELECT RELEASE_LOCK('{sql.maria_name(key)}')")

    async def ping(self) -> bool:
        """Tell whether it is still ours."""
        return await self._number(sql.MARIA_PING) == self.pid

    async def cancel(self, waiting: "AsyncMariaSession") -> None:
        """Break off what another session waits for; in vain if the server has not begun with it."""
        await self.rows(f"KILL QUERY {waiting.pid}")

    async def terminate(self, other: "AsyncMariaSession") -> None:
        """End another session on the server; ids begin anew when that starts, and on another server."""
        (started, server), (before, its) = await self._find_born(), other.born
        if server == its and abs(started - before) <= sql.ROUNDED:
            try:
                await self.rows(f"KILL {other.pid}")
            except Refusal as error:
                if error.state != sql.NO_THREAD:
                    raise

    # -- looking ----------------------------------------------------------------------------------------

    async def look(self, key: int) -> Rows:
        """As `AsyncPostgresSession.look`; without the privilege PROCESS, only waiters of the same user are shown."""
        (holder,), *waiting = await self.rows(sql.MARIA_LOOK.format(key=sql.maria_name(key)))
        found: Rows = [] if holder is None else [(holder, "t", "ExclusiveLock", None, None)]
        return found + [(number, "f", "ExclusiveLock", None, None) for (number,) in waiting]

    async def about(self) -> tuple[str, str, int]:
        """As `AsyncPostgresSession.about`; only the server's configuration says when a dead machine's are free."""
        ((version,),) = await self.rows("SELECT VERSION()")
        try:
            (row,) = await self.rows(sql.MARIA_KEEPALIVE)
        except Refusal:  # a version that does not know them
            row = ("0", "0", "0")
        idle, interval, probes = (int(str(each)) for each in row)
        return str(version), "no limit of its own", idle + interval * probes if idle and interval and probes else 0

    def has_ended(self) -> bool:
        return ready(self.fd, 0)  # the server says nothing unless it ends it

    # -- talking ----------------------------------------------------------------------------------------

    async def rows(self, text: str, *values: object, waits: bool = False) -> Rows:
        """Perform a statement, and return the rows.

        Raises:
            Refusal: the server refuses.
            UnknownOutcome: the connection failed, or no answer came in time.
        """
        self.begin()
        return await (rt.apart if waits else rt.offload)(self._perform, text, waits)

    def _perform(self, text: str, waits: bool) -> Rows:
        try:
            set_read_timeout(self._client, None if waits else IO_TIMEOUT)
            self._cursor.execute(text)
            rows = self._cursor.fetchall()
            return [tuple(None if value is None else str(value) for value in row) for row in rows]
        except (pymysql.MySQLError, OSError) as error:
            number = error.args[0] if error.args else 0
            if isinstance(error, pymysql.err.InterfaceError) or not isinstance(number, int) or not self._client.open:
                raise self._broken(error) from error
            if 2000 <= number < 3000 or not isinstance(error, pymysql.MySQLError):
                raise self._broken(error) from error
            raise Refusal(str(number), str(error)) from error
        except BaseException:
            self.alive = False  # an interrupt has broken a packet in two
            raise
        finally:
            self.over()

    def _broken(self, error: Exception) -> UnknownOutcome:
        self.alive = False
        self.silent = isinstance(error.__context__, TimeoutError)
        return UnknownOutcome(f"the session with MariaDB has ended, and all that it held is free: {error}")

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # another file may have this number soon
            if self._client.open:
                self._client.close()
