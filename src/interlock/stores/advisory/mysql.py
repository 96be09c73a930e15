"""One session with MariaDB, which carries locks of GET_LOCK or waits for one."""

import select
import socket
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from typing import Any

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.stores.advisory.dialling import connected
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT, AdvisorySession, Refusal, Standing

COM_QUERY = 3
FOREVER = 2_000_000  # seconds; MariaDB answers NULL to -1
TRY = "SELECT IF(GET_LOCK('{key}', 0) = 1, NEXTVAL({sequence}), NULL)"
UNLOCK = "SELECT RELEASE_LOCK('{key}')"
WAIT = "SELECT GET_LOCK('{key}', {forever})"
FENCE = "SELECT NEXTVAL({sequence})"  # apart: what waits and uses a table holds up a backup, and that who writes
LOOK = "SELECT IS_USED_LOCK('{key}')"
WAITING = "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND LOCATE('{key}', INFO) > 0"
OWN = "CONNECTION_ID() + 0"  # a pooler answers the bare question itself
STANDING = (
    f"SELECT ID = {OWN}, COALESCE(IS_USED_LOCK('{{key}}') = {{pid}}, 0) FROM information_schema.PROCESSLIST "
    f"WHERE ID = {OWN} OR (ID = {{pid}} AND STATE = 'User lock' AND LOCATE('{{key}}', INFO) > 0)"
)
BORN = (
    "SELECT CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED), CONCAT_WS(' ', @@hostname, @@port, @@server_id) "
    "FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'"
)
ROUNDED = 2  # seconds
KEEPALIVE = "SELECT @@global.tcp_keepalive_time, @@global.tcp_keepalive_interval, @@global.tcp_keepalive_probes"
NO_THREAD = "1094"
KEPT_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}  # ms the last


class MysqlSession(AdvisorySession):
    """A session; see `AdvisorySession`.

    What is said is said by a thread of its own: an interrupt of the caller then breaks no packet in two.

    Args:
        options: what the URL says.

    Raises:
        StoreError: the server can't be reached, or keeps no such locks.
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._client = connected(options)
        self._sequence = options.sequence
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="interlock-mysql")
        self._said: Future[Any] | None = None
        self._silent_since: float | None = None
        self.reported_pid = self.pid = self._client.thread_id()
        self.socket = self._client._sock.fileno()
        _keep_alive(self._client._sock)

    def _sql(self, sql: str, key: object) -> str:
        # Lowercase, as names are compared without regard to case.
        return sql.format(
            key=f"interlock_{int(str(key)) & (1 << 64) - 1:016x}", sequence=self._sequence, forever=FOREVER
        )

    def _do(self, work: Callable[[], Any]) -> Any:
        if not self.alive:
            raise UnknownOutcome("the session with MariaDB has ended")
        try:
            self._said = said = self._thread.submit(work)
        except RuntimeError as error:
            if not self.alive:  # somebody else has ended it just now
                raise UnknownOutcome("the session with MariaDB has ended") from error
            raise StoreError(f"no thread can be started to talk with MariaDB: {error}") from error
        try:
            found = said.result()
        except (pymysql.err.InterfaceError, OSError) as error:
            self._said = None
            raise self._broken(error) from error
        except pymysql.MySQLError as error:
            self._said = None
            number = error.args[0] if error.args else 0
            if isinstance(number, int) and (2000 <= number < 3000 or not self._client.open):
                raise self._broken(error) from error
            raise Refusal(str(number), str(error)) from error
        except AttributeError as error:  # of a client that somebody else has closed
            self._said = None
            if self.alive:
                raise
            raise UnknownOutcome("the session with MariaDB has ended") from error
        finally:
            del said  # an error that knows this call, which knows the error, would keep all its callers alive
        self._said = None
        return found

    def _query(self, sql: str) -> list[list[str | None]]:
        self._client._execute_command(COM_QUERY, sql)
        return self._read()

    def _read(self) -> list[list[str | None]]:
        self._client._read_query_result()
        rows = self._client._result.rows or ()
        return [[None if value is None else str(value) for value in row] for row in rows]

    def _try(self, key: int, shared: bool) -> str | None:
        return self._ask(TRY, key)

    def _unlock(self, key: int, shared: bool) -> None:
        self._ask(UNLOCK, key)

    def _ask(self, sql: str, key: int) -> str | None:
        self._drain()
        text = self._sql(sql, key)
        ((found,),) = self._do(lambda: self._query(text))
        return None if found is None else str(found)

    def _drain(self) -> None:
        said = self._said
        if said is not None and self.waits_for is None:
            said.exception()
            self._said = None

    def _owes(self) -> bool:
        return self._said is not None

    @property
    def overdue(self) -> float:
        """As `AdvisorySession.overdue`; a session that does not answer in time has ended."""
        return 0.0 if self._silent_since is None else monotonic() - self._silent_since

    def begin(self, key: int, shared: bool) -> None:
        """As `AdvisorySession.begin`."""
        with self.mutex:
            self._drain()
            text = self._sql(WAIT, key)
            self._begun = True
            self._do(lambda: self._client._execute_command(COM_QUERY, text))
            self.waits_since = monotonic()
            self.waits_for = key, shared
            self._begun = False

    def _arrives(self, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self.socket, select.POLLIN)
        return bool(poll.poll(max(0.0, deadline - monotonic()) * 1000))

    def _fence(self, key: int) -> str | None:
        (row,) = self._do(self._read)
        if row[0] != "1":
            raise Refusal("0", "the wait was broken off by KILL QUERY, a time limit, or a deadlock")
        ((fence,),) = self._do(lambda: self._query(self._sql(FENCE, key)))
        return str(fence)

    def cancel(self, waiting: AdvisorySession) -> None:
        """As `AdvisorySession.cancel`."""
        with self.mutex:
            self.run(f"KILL QUERY {waiting.pid}")

    def ping(self) -> int:
        """As `AdvisorySession.ping`."""
        with self.mutex:
            return int(str(self._ask(f"SELECT {OWN}", 0)))

    def rows(self, sql: str, *values: object) -> list[list[str | None]]:
        """As `AdvisorySession.rows`; there are no values."""
        with self.mutex:
            self.settle()
            found: list[list[str | None]] = self._do(lambda: self._query(sql))
            return found

    def run(self, sql: str) -> None:
        """As `AdvisorySession.run`, for one statement."""
        self.rows(sql)

    def look(self, key: int) -> list[list[str | None]]:
        """As `AdvisorySession.look`; without the privilege PROCESS, only waiters of the same user are shown."""
        (holder,) = self.rows(self._sql(LOOK, key))
        waiting = self.rows(self._sql(WAITING, key))
        return [
            [number, granted, "ExclusiveLock", None, None]
            for granted, found in (("t", [holder]), ("f", waiting))
            for (number,) in found
            if number is not None
        ]

    def standing(self, waiting: AdvisorySession, key: int) -> Standing:
        """As `AdvisorySession.standing`; "unknown" where not even this session is shown, for want of a privilege."""
        found = self.rows(self._sql(STANDING.replace("{pid}", str(waiting.pid)), key))
        own = [holds for is_own, holds in found if is_own == "1"]
        if not own:
            return "unknown"
        return "holds" if own[0] == "1" else "waits" if len(found) > 1 else "gone"

    def terminate(self, pid: int, born: Any) -> None:
        """As `AdvisorySession.terminate`; ids begin anew when the server starts, and on another server."""
        (started, server), (before, its) = self.find_born(), born
        if server == its and abs(started - before) <= ROUNDED:
            try:
                self.run(f"KILL {pid}")
            except Refusal as error:
                if error.state != NO_THREAD:
                    raise

    def find_born(self) -> tuple[int, str]:
        """Return when the server started, in seconds, rounded, and which one it is."""
        started, server = self.rows(BORN)[0]
        return int(str(started)), str(server)

    def about(self) -> tuple[str, str]:
        """As `AdvisorySession.about`."""
        return str(self.rows("SELECT VERSION()")[0][0]), "no limit of its own"

    def dead_after(self) -> int:
        """As `AdvisorySession.dead_after`; only the server's configuration can say so."""
        try:
            idle, interval, probes = (int(str(each)) for each in self.rows(KEEPALIVE)[0])
        except Refusal:  # a version that does not know them
            return 0
        return idle + interval * probes if idle and interval and probes else 0

    def _broken(self, error: Exception) -> UnknownOutcome:
        if isinstance(error.__context__, TimeoutError):
            self._silent_since = monotonic() - IO_TIMEOUT
        self.fail()
        return UnknownOutcome(f"the session with MariaDB has ended, and all that it held is free: {error}")

    def _close(self) -> None:
        self.socket = -1  # another file may have this number soon
        self._thread.shutdown(wait=False)
        self._client._force_close()


def _keep_alive(connection: socket.socket) -> None:
    """Let the system see to it that nothing in between forgets a connection on which nothing is said for long."""
    if connection.family != socket.AF_UNIX:
        for name, value in KEPT_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
