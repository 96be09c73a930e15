"""How a session with MariaDB is opened: its time-outs, the sequence of fences, and which servers are refused."""

from interlock.core.errors import StoreError
from interlock.stores.advisory.mysql import MysqlSession
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import Refusal

NOW = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
LEAP = 1_000_000  # fences
LOST = "1032"  # the server crashed before the one row of a new sequence was on the disk
SETTINGS = (
    "SET SESSION wait_timeout = 31536000, interactive_timeout = 31536000, max_statement_time = 0, autocommit = 1"
)
WRITES = "SET SESSION TRANSACTION READ WRITE"  # a sequence can't be used by a transaction that only reads
TABLE_STRATEGY = "use the locks of a table instead: mysql:// or mariadb://"


def open_mysql(options: Options) -> MysqlSession:
    """Open a session that keeps its locks.

    Raises:
        StoreError: the server can't be reached, or its locks are not for all.
    """
    session = MysqlSession(options)
    try:
        _check(session)
        session.pid, session.born = session.ping(), session.find_born()
        session.run(SETTINGS)
        session.run(WRITES)
        # Never from 1: a session that has set an older one meanwhile sets this one no more.
        make = f"CREATE SEQUENCE IF NOT EXISTS {options.sequence} START WITH {_clock(session)}"
        try:
            session.rows(f"SELECT LASTVAL({options.sequence})")
        except Refusal:
            try:
                session.run(make)
            except Refusal as error:
                raise StoreError(
                    f"there is no sequence for the fences, and it can't be made ({error}); let an administrator do "
                    f"it: {make}; GRANT SELECT, INSERT ON {options.sequence} TO your_user"
                ) from error
        try:
            _leap(session, options.sequence)
        except Refusal as error:
            if error.state != LOST:
                raise
            session.run(f"DROP SEQUENCE IF EXISTS {options.sequence}")  # another may be at it
            session.run(make)
            _leap(session, options.sequence)
    except BaseException as error:
        session.fail()
        if isinstance(error, Refusal):
            raise StoreError(f"MariaDB refuses to be used for locks: {error}") from error
        raise
    return session


def _leap(session: MysqlSession, sequence: str) -> None:
    """Set the sequence beyond what it gave out before a crash of the server and may have forgotten.

    What it gives out is not on the disk yet.  No session outlives a crash, so whoever takes a number after it has
    been here.  Fences are set to the server's clock, in microseconds, which nobody takes numbers faster than; SETVAL
    never sets them back.  Where the clock was set back they leap over what a second can have given out.
    """
    now = _clock(session)
    if session.rows(f"SELECT SETVAL({sequence}, {now})") != [[None]]:
        return
    ahead = int(str(session.rows(f"SELECT NEXTVAL({sequence})")[0][0]))
    if ahead - now > LEAP:  # else somebody has just set it
        session.rows(f"SELECT SETVAL({sequence}, {ahead + LEAP})")


def _clock(session: MysqlSession) -> int:
    return int(str(session.rows(NOW)[0][0]))


def _check(session: MysqlSession) -> None:
    (version,) = session.rows("SELECT VERSION()")[0]
    if "vitess" in str(version).lower():
        raise StoreError(f"Vitess spreads sessions over servers, and GET_LOCK with them: {TABLE_STRATEGY}")
    if "mariadb" not in str(version).lower():
        raise StoreError(f"{version} is not MariaDB, and these locks are not tested with it: {TABLE_STRATEGY}")
    if session.rows("SHOW VARIABLES LIKE 'wsrep_on'") in ([["wsrep_on", "ON"]], [["wsrep_on", "1"]]):
        raise StoreError(f"in a Galera cluster GET_LOCK is known to one node only: {TABLE_STRATEGY}")
    if session.rows("SELECT @@global.read_only") not in ([["0"]], [["OFF"]]):
        raise StoreError("this server is read-only, as replicas are, and others lock elsewhere: use the primary")
