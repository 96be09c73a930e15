"""What PostgreSQL and MariaDB are told, and what they say when they are no place for such locks."""

from typing import NamedTuple

SERVED = "(SELECT oid FROM pg_database WHERE datname = current_database())"
OF_A_NAME = (
    "l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = $1::bigint "
    f"AND l.database = {SERVED}"
)
LOOK = (
    "SELECT l.pid, l.granted, l.mode, a.application_name, extract(epoch FROM coalesce(a.query_start, now())) "
    f"FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE {OF_A_NAME} "
    "ORDER BY l.granted DESC, a.query_start"
)
SERVER = (
    "SELECT oid::text, extract(epoch FROM pg_postmaster_start_time())::text FROM pg_database "
    "WHERE datname = current_database()"
)
PING = "SELECT pg_backend_pid()"
BORN = "(extract(epoch FROM backend_start) * 1000000)::bigint"
FIRST = (  # not deferrable: else it may wait for all who write
    f"SET TRANSACTION NOT DEFERRABLE; SELECT pg_backend_pid(), {BORN}, pg_is_in_recovery() "
    "FROM pg_stat_activity WHERE pid = pg_backend_pid()"
)
SETTINGS = {
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_session_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    "transaction_timeout": "0",
    "default_transaction_isolation": "read committed",  # a long wait that is serializable costs all others memory
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20000",
}
SET = (  # those that this version of the server knows
    "SET TRANSACTION NOT DEFERRABLE; SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN unnest("
    f"string_to_array('{','.join(SETTINGS)}', ','), string_to_array('{','.join(SETTINGS.values())}', ',')) "
    "v(name, value) USING (name)"
)
NOTICE_THE_END = "SET client_connection_check_interval = 1000"  # not on every system
DEAD_AFTER = 15 + 5 * 3  # seconds
BEHIND = 3  # transactions that are opened behind a pooler, to see whether one of them gets our server
CANCEL = "SELECT pg_cancel_backend($1::int)"
TERMINATE = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1::int AND {BORN} = $2::bigint"
ABOUT = (
    "SELECT version(), current_setting('max_locks_per_transaction')::int * "
    "(current_setting('max_connections')::int + current_setting('max_prepared_transactions')::int)"
)
UNLOCK = "SELECT pg_advisory_unlock_all()"
OPENING = 0x696E7465726C6B00  # the key that orders those who open
LEAP = 1 << 20  # fences

LENT = (
    "between here and PostgreSQL is a pooler in transaction mode, like PgBouncer's: it lends one session to many, so "
    "an advisory lock would stay with a stranger; connect past it or in session mode, or use postgresql://, whose "
    "locks are rows of a table"
)
REPLICA = "this PostgreSQL is a replica, whose locks nobody else sees: connect to the primary"
TABLE_STRATEGY = "use the locks of a table instead: mysql:// or mariadb://"


class PostgresStatements(NamedTuple):
    """Those in which the sequence of the fences stands; the pairs are for exclusive locks and for readers."""

    attempt: tuple[str, str]
    wait: tuple[str, str]
    make: str
    forward: str


def postgres_statements(sequence: str) -> PostgresStatements:
    """Return the statements for a sequence."""
    number = f"nextval('{sequence}')"
    exclusive, shared = (
        (
            f"SELECT CASE WHEN pg_try_advisory_lock{kind}($1::bigint) THEN {number} END",
            f"WITH got AS MATERIALIZED (SELECT pg_advisory_lock{kind}($1::bigint)) SELECT {number} FROM got",
        )
        for kind in ("", "_shared")
    )
    clock = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    begin = f"SELECT pg_advisory_xact_lock({OPENING}); "
    return PostgresStatements(
        (exclusive[0], shared[0]),
        (exclusive[1], shared[1]),
        f"CREATE SEQUENCE IF NOT EXISTS {sequence} START WITH ",
        f"{begin}SELECT setval('{sequence}', CASE WHEN clock > number THEN clock ELSE number + {LEAP} END) "
        f"FROM (SELECT nextval('{sequence}') AS number, {clock} AS clock) AS now",
    )


FOREVER = 2_000_000  # seconds; MariaDB answers NULL to -1
MARIA_PING = "SELECT CONNECTION_ID() + 0"  # a pooler answers the bare question itself
MARIA_LOOK = (
    "SELECT IS_USED_LOCK('{key}') UNION ALL "
    "SELECT ID FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND LOCATE('{key}', INFO) > 0"
)
MARIA_BORN = (
    "SELECT CAST(UNIX_TIMESTAMP() - VARIABLE_VALUE AS SIGNED), CONCAT_WS(' ', @@hostname, @@port, @@server_id) "
    "FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'"
)
ROUNDED = 2  # seconds
MARIA_NOW = "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)"
MARIA_KEEPALIVE = "SELECT @@global.tcp_keepalive_time, @@global.tcp_keepalive_interval, @@global.tcp_keepalive_probes"
MARIA_SETTINGS = (
    "SET SESSION wait_timeout = 31536000, interactive_timeout = 31536000, max_statement_time = 0, autocommit = 1"
)
MARIA_WRITES = "SET SESSION TRANSACTION READ WRITE"  # a sequence can't be used by a transaction that only reads
NO_THREAD = "1094"
LOST_ROW = "1032"  # the server crashed before the one row of a new sequence was on the disk


def maria_name(key: int) -> str:
    """Return how a lock is called; in lower case, as names are compared without regard to case."""
    return f"interlock_{key & (1 << 64) - 1:016x}"
