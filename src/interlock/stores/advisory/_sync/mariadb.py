# Generated from _async/mariadb.py by tools/unasync.py; change that one.
"""How tasks talk with MariaDB: PyMySQL blocks, so a thread does it meanwhile."""

from interlock.core.errors import StoreError
from interlock.runtime import _threads as rt
from interlock.stores.advisory import statements
from interlock.stores.advisory._sync.talk import Talk
from interlock.stores.advisory.mariadb import MariaSession
from interlock.stores.advisory.session import IO_TIMEOUT, Refusal, Rows

LEAP = 1_000_000  # fences
LOST_ROW = "1032"  # the server crashed before the one row of a new sequence was on the disk


class MariaTalk(Talk[MariaSession]):
    """How tasks talk with MariaDB."""

    words = statements.MARIA

    def prepare(self, session: MariaSession) -> None:
        problem = statements.refused_version(session.client.get_server_info())
        if not problem:
            ((pid, read_only, wsrep),) = self.say(session, "first")
            session.pid = int(str(pid))
            problem = statements.refused_server(read_only, wsrep)
        if problem:
            raise StoreError(problem)
        self.say(session, "settings")
        self.say(session, "writes")
        try:
            self._leap(session)
        except Refusal as error:
            if error.state == LOST_ROW:
                self.say(session, "drop")  # another may be at it
            self._make(session)
            self._leap(session)

    def _make(self, session: MariaSession) -> None:
        # Never from 1: a session that has set an older one meanwhile sets this one no more.
        sequence, ((clock,),) = session.options.sequence, self.say(session, "now")
        make = f"{self.words['make'].format(sequence=sequence)}{clock}"
        try:
            self.rows(session, make)
        except Refusal as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an administrator do "
                f"it: {make}; GRANT SELECT, INSERT ON {sequence} TO your_user"
            ) from error

    def _leap(self, session: MariaSession) -> None:
        """Set the sequence beyond what it gave out before a crash of the server and may have forgotten.

        What it gives out is not on the disk yet.  No session outlives a crash, so whoever takes a number after it has
        been here.  Fences are set to the server's clock, in microseconds, which nobody takes numbers faster than;
        SETVAL never sets them back.  Where the clock was set back they leap over what a second can have given out.
        """
        sequence, ((clock,),) = session.options.sequence, self.say(session, "now")
        if self.rows(session, f"SELECT SETVAL({sequence}, {clock})") == [(None,)]:
            ((ahead,),) = self.say(session, "fence")
            if int(str(ahead)) - int(str(clock)) > LEAP:  # else somebody has just set it
                self.rows(session, f"SELECT SETVAL({sequence}, {int(str(ahead)) + LEAP})")

    def rows(self, session: MariaSession, text: str, seconds: float | None = IO_TIMEOUT) -> Rows:
        session.begin()
        return (rt.apart if seconds is None else rt.offload)(session.perform, text, seconds)
