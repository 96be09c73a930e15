"""How a session with PostgreSQL is opened: its time-outs, the sequence of fences, and who is in between."""

from contextlib import suppress
from time import time

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.postgres import BORN, KEEPALIVE, PostgresSession
from interlock.stores.advisory.session import Refusal

LEAP = 1 << 20
SET_FORWARD = (
    "SELECT setval('{sequence}', CASE WHEN clock > number THEN clock ELSE number + {leap} END) FROM (SELECT "
    "nextval('{sequence}') AS number, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock) AS now"
)
OPENING = 0x696E7465726C6B00  # the key that orders those who open
SETTINGS = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
    "default_transaction_isolation": "read committed",  # a long wait that is serializable costs all others memory
    "default_transaction_read_only": "off",
    "synchronous_commit": "on",
    **{name: str(value) for name, value in KEEPALIVE.items()},
    "tcp_user_timeout": "20000",
}
SET = (
    "SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN "
    "unnest(string_to_array($1, ','), string_to_array($2, ',')) v(name, value) USING (name)"
)  # of those that this version of the server knows
BEHIND = 3  # transactions that are opened behind a pooler, to see whether one of them gets our server


def open_session(options: Options) -> PostgresSession:
    """Open a session that keeps its locks.

    Raises:
        StoreError: the server can't be reached, is a replica, or is behind a pooler that lends its sessions.
    """
    session = PostgresSession(options)
    try:
        found = session.ping(first=True)
        if found != session.reported_pid:
            session.pid = found
            _refuse_lent(session, options)
        # Else what only reads may wait for everybody who writes, and they for us.
        session.rows("SET default_transaction_deferrable = off")
        session.born = int(str(session.rows(BORN)[0][0]))
        if session.rows("SELECT pg_is_in_recovery()") == [["t"]]:
            raise StoreError("this PostgreSQL is a replica, whose locks nobody else sees: connect to the primary")
        session.rows(SET, ",".join(SETTINGS), ",".join(SETTINGS.values()))
        with suppress(Refusal):  # not on every system
            session.rows(SET, "client_connection_check_interval", "1000")
        _leap(session, options.sequence)
    except BaseException as error:
        session.fail()
        if isinstance(error, Refusal):
            raise StoreError(f"PostgreSQL refuses to be used for locks: {error}") from error
        raise
    return session


def _leap(session: PostgresSession, sequence: str) -> None:
    """Make the sequence, and set it beyond what it gave out before a crash of the server and may have forgotten.

    The server writes down 32 numbers at a time, and may give one out before that is on the disk; a replica that takes
    over may lack more. No session outlives either, so whoever takes a number after it has been here. Fences are set
    to the server's clock, in microseconds, which nobody takes numbers faster than. Only where the clock was set back
    they leap instead: if they always did, those who lost many openings in a fail-over would leap too short. The lock
    is for those who set it: only one may.
    """
    if session.rows("SELECT to_regclass($1)", sequence) == [[None]]:
        make = f"CREATE SEQUENCE IF NOT EXISTS {sequence} START WITH {int(time() * 1_000_000)}"
        try:
            session.run(f"SELECT pg_advisory_xact_lock({OPENING}); {make}")
        except Refusal as error:
            raise StoreError(
                f"there is no sequence for the fences, and it can't be made ({error}); let an owner of the schema do "
                f"it: {make}; GRANT USAGE, UPDATE ON SEQUENCE {sequence} TO your_role"
            ) from error
    forward = SET_FORWARD.format(sequence=sequence, leap=LEAP)
    session.run(f"SELECT pg_advisory_xact_lock({OPENING}); {forward}")


def _refuse_lent(session: PostgresSession, options: Options) -> None:
    """Refuse a pooler that gives our session of the server to others between our statements.

    Its protocol tells another process than the server does. So transactions are opened beside ours: a pooler in
    session mode leaves our session to us.
    """
    others: list[PostgresSession] = []
    try:
        for _ in range(BEHIND):
            others.append(PostgresSession(options))
            others[-1].run("BEGIN NOT DEFERRABLE")
            others[-1].rows("SELECT 1")
            if session.ping() != session.pid or others[-1].ping() == session.pid:
                raise StoreError(LENT)
    except (Refusal, UnknownOutcome) as error:  # in statement mode there are no transactions
        raise StoreError(f"{LENT} ({error})") from error
    finally:
        for other in others:
            other.fail()


LENT = (
    "between here and PostgreSQL is a pooler in transaction mode, like PgBouncer's: it lends one session to many, so "
    "an advisory lock would stay with a stranger; connect past it or in session mode, or use postgresql://, whose "
    "locks are rows of a table"
)
