# Generated from _async/mariadb.py by tools/unasync.py; change that one.
"""One session with MariaDB, as tasks use it: PyMySQL, which blocks, in a thread that works meanwhile."""

from typing import Any
from urllib.parse import urlsplit

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.runtime import _threads as rt
from interlock.runtime._threads import ready
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.session import LONG, Session
from interlock.stores.advisory.dialling import dialled, set_read_timeout
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, Rows

LEAP = 1_000_000  # fences
LOST_ROW = "1032"  # the server crashed before the one row of a new sequence was on the disk


class MariaSession(Session):
    """A session with MariaDB."""

    words = statements.MARIA
    _client: Any
    _cursor: Any

    def _open(self) -> None:
        rt.offload(self._connect)
        problem = statements.refused_version(self._client.get_server_info())
        if not problem:
            ((pid, read_only, wsrep),) = self.say("first")
            problem = statements.refused_server(read_only, wsrep)
        if problem:
            raise StoreError(problem)
        self.pid = int(str(pid))
        self.say("settings")
        self.say("writes")
        try:
            self._leap()
        except Refusal as error:
            if error.state == LOST_ROW:
                self.say("drop")  # another may be at it
            self._make()
            self._leap()

    def _connect(self) -> None:
        self._client, self.fd = dialled(urlsplit(self.options.conninfo), self.options.torn)
        self._cursor = self._client.cursor()
        self.reported_pid = self._client.thread_id()

    def _make(self) -> None:
        # Never from 1: a session that has set an older one meanwhile sets this one no more.
        sequence, ((clock,),) = self.options.sequence, self.say("now")
        make = f"{self.words['make'].format(sequence=sequence)}{clock}"
        try:
            self.rows(make)
        except Refusal as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an administrator do "
                f"it: {make}; GRANT SELECT, INSERT ON {sequence} TO your_user"
            ) from error

    def _leap(self) -> None:
        """Set the sequence beyond what it gave out before a crash of the server and may have forgotten.

        What it gives out is not on the disk yet.  No session outlives a crash, so whoever takes a number after it has
        been here.  Fences are set to the server's clock, in microseconds, which nobody takes numbers faster than;
        SETVAL never sets them back.  Where the clock was set back they leap over what a second can have given out.
        """
        sequence, ((clock,),) = self.options.sequence, self.say("now")
        if self.rows(f"SELECT SETVAL({sequence}, {clock})") == [(None,)]:
            ((ahead,),) = self.say("fence")
            if int(str(ahead)) - int(str(clock)) > LEAP:  # else somebody has just set it
                self.rows(f"SELECT SETVAL({sequence}, {int(str(ahead)) + LEAP})")

    def rows(self, text: str, seconds: float = IO_TIMEOUT) -> Rows:
        self.begin()
        return (rt.apart if seconds == LONG else rt.offload)(self._perform, text, seconds)

    def _perform(self, text: str, seconds: float) -> Rows:
        try:
            set_read_timeout(self._client, None if seconds == LONG else seconds)
            self._cursor.execute(text)
            rows = self._cursor.fetchall()
            return [tuple(None if value is None else str(value) for value in row) for row in rows]
        except (pymysql.MySQLError, OSError) as error:
            number = error.args[0] if error.args else 0
            if isinstance(error, pymysql.MySQLError) and self._client.open and not 2000 <= number < 3000:
                raise Refusal(str(number), str(error)) from error
            self.silent = isinstance(error.__context__, TimeoutError)
            raise self.broken(error) from error
        except BaseException:
            self.alive = False  # an interrupt has broken a packet in two
            raise
        finally:
            self.over()

    def has_ended(self) -> bool:
        return ready(self.fd, 0)  # the server says nothing unless it ends it

    def close(self) -> None:
        if self.fd >= 0:
            self.fd = -1  # another file may have this number soon
            if self._client.open:
                self._client.close()
