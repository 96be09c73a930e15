# Generated from _async/mariadb.py by tools/unasync.py; change that one.
"""Requests to MariaDB for asyncio tasks: PyMySQL blocks, so each runs in a worker thread."""

from interlock.core.errors import StoreError
from interlock.remote.failures import Refused
from interlock.runtime import _threads as rt
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.talk import Talk
from interlock.stores.advisory.mariadb import MariaSession
from interlock.stores.advisory.session import IO_TIMEOUT, Rows

LEAP = 1_000_000  # fences
LOST_ROW = "1032"  # error of a sequence without its row: the server crashed before the row was on disk


class MariaTalk(Talk[MariaSession]):
    """Requests to MariaDB."""

    words = statements.MARIA

    def prepare(self, session: MariaSession) -> None:
        problem = statements.refused_version(session.client.get_server_info())
        if not problem:
            ((pid, read_only, wsrep),) = self.say(session, "first")
            problem = statements.refused_server(read_only, wsrep) if pid == str(session.pid) else statements.POOLED
        if problem:
            raise StoreError(problem)
        self.say(session, "settings")
        self.say(session, "writes")
        try:
            self._leap(session)
        except Refused as error:
            if error.code == LOST_ROW:
                self.say(session, "drop")  # IF EXISTS: another process may repair it at the same time
            ((clock,),) = self.say(session, "now")
            self.make_sequence(session, clock)
            self._leap(session)

    def _leap(self, session: MariaSession) -> None:
        """Set the sequence beyond all numbers that it issued before a crash of the server.

        The sequence may have lost these: the server issues a number before it is on disk.  No session survives a
        crash, so every session that takes a number after it has run this method.  The sequence is set to the server's
        clock in microseconds, since numbers are issued more slowly than that; SETVAL never sets it back.  If the
        clock was set back, by more than `LEAP` behind the sequence, then the sequence leaps by `LEAP`: more than it
        can issue in a second.
        """
        sequence, ((clock,),) = session.options.sequence, self.say(session, "now")
        if self.rows(session, f"SELECT SETVAL({sequence}, {clock})") == [(None,)]:
            ((ahead,),) = self.say(session, "fence")
            if int(str(ahead)) - int(str(clock)) > LEAP:  # else another session has just set it
                self.rows(session, f"SELECT SETVAL({sequence}, {int(str(ahead)) + LEAP})")

    def rows(self, session: MariaSession, text: str, seconds: float | None = IO_TIMEOUT) -> Rows:
        session.begin()
        return (rt.apart if seconds is None else rt.offload)(session.perform, text, seconds)
