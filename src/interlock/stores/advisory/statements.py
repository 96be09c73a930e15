"""The statements for PostgreSQL and MariaDB, and the messages for servers that can't be used for advisory locks.

Placeholders of `POSTGRES` and `MARIA`: {key} or {name} is the lock, {kind} is `_shared` for a reader, {sequence} is
the sequence that issues fences, {pid} is another session, {line} and {ticket} are the place of a waiter.

**Waiting on PostgreSQL.**  A statement that waits is a transaction with a snapshot, and CREATE INDEX CONCURRENTLY
waits for every such transaction.  So a waiter waits in slices of `SLICE` seconds; a session-level lock, which needs
no transaction, keeps its place between two slices.  This lock is the ticket: two integers, the line of the name and
the time of arrival.  In a slice the waiter first waits until all earlier tickets of the line have ended, then for the
lock.  `statement_timeout` ends a slice, and the server may have granted the lock just before.  Then the session keeps
the lock, and a try at the end of the slice detects this.  Through this try a waiter also passes a stopped waiter.
"""

OF_THE_LOCK = (
    "l.locktype = 'advisory' AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = {key} "
    "AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
OF_THE_LINE = (
    "l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid::bigint = {line} AND l.mode = 'ExclusiveLock' "
    "AND l.granted AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
TICKETS = 2_147_483_500  # they start again after 248 days; an int has room for 99 more
CURRENT_TICKET = f"(extract(epoch FROM clock_timestamp()) * 100)::bigint % {TICKETS}"  # the ticket of this moment
WAIT_SLICE = 0.5  # seconds; shorter than the default of deadlock_timeout, so that no index is cancelled as a deadlock
OPENING = 0x696E7465726C6B00  # the advisory lock under which sessions open one after another
LEAP = 1 << 20  # fences
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = (
    15,
    5,
    3,
)  # seconds, seconds and probes of the keepalive, on both sides

POSTGRES = {
    "attempt": "EXECUTE interlock_attempt{kind}({key})",
    "queue": (
        f"SELECT ticket FROM (SELECT ({CURRENT_TICKET})::int AS now) AS it, LATERAL generate_series(now, now + 99) "
        "AS ticket WHERE pg_try_advisory_lock({line}, ticket) LIMIT 1"
    ),
    "wait": (
        f"SET LOCAL statement_timeout = {WAIT_SLICE * 1000:.0f}; DO $$ DECLARE earlier int; fence text; BEGIN "
        "FOR earlier IN "
        f"SELECT DISTINCT l.objid::bigint::int FROM pg_locks l WHERE {OF_THE_LINE} AND l.objid::bigint < {{ticket}} "
        "ORDER BY 1 LOOP PERFORM pg_advisory_xact_lock_shared({line}, earlier); END LOOP; "
        "WITH got AS MATERIALIZED (SELECT pg_advisory_lock{kind}({key})) SELECT "  # planned before it waits
        "set_config('interlock.fence', nextval('{sequence}')::text, true) INTO fence "
        "FROM got, LATERAL pg_advisory_unlock({line}, {ticket}); "
        # Caught here, because otherwise the server would log an error for each slice.
        "EXCEPTION WHEN query_canceled THEN IF pg_try_advisory_lock{kind}({key}) THEN "
        "PERFORM set_config('interlock.fence', nextval('{sequence}')::text, true); END IF; END $$; "
        "SELECT nullif(current_setting('interlock.fence', true), '')"  # set for this transaction only
    ),
    "give back": "EXECUTE interlock_give_back",
    "ping": "SELECT 1",
    "break off": "SELECT pg_cancel_backend({pid})",
    "end": "SELECT pg_terminate_backend({pid})",  # for people
    "look": (
        "SELECT l.pid, bool_or(l.granted AND l.objsubid = 1), "
        "coalesce(min(l.mode) FILTER (WHERE l.objsubid = 1), 'ExclusiveLock'), min(a.application_name), "
        "min(CASE l.objsubid WHEN 1 THEN extract(epoch FROM coalesce(a.query_start, now())) "
        f"ELSE extract(epoch FROM now()) - ({CURRENT_TICKET} - l.objid::bigint + {TICKETS + 99}) % {TICKETS} / 100.0 "
        "+ 0.99 END"
        ") AS since FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) "
        f"WHERE ({OF_THE_LOCK}) OR ({OF_THE_LINE}) GROUP BY l.pid ORDER BY 2 DESC, since"
    ),
    "about": (
        "SELECT split_part(version(), ',', 1), format('about %s locks of all', current_setting("
        "'max_locks_per_transaction')::int * (current_setting('max_connections')::int + "
        "current_setting('max_prepared_transactions')::int)), "
        f"{KEEPALIVE_IDLE}, {KEEPALIVE_INTERVAL}, {KEEPALIVE_COUNT}"
    ),
    # Not deferrable: else a serializable read-only transaction may wait for all writers.
    "first": "SET TRANSACTION NOT DEFERRABLE; SELECT pg_backend_pid(), pg_is_in_recovery()",
    "make": f"SELECT pg_advisory_xact_lock({OPENING}); ",  # before the statement that makes the sequence
    "allow": "GRANT USAGE, UPDATE ON SEQUENCE {sequence} TO your_role",
    "leap": (
        f"SELECT pg_advisory_xact_lock({OPENING}); "
        f"SELECT setval('{{sequence}}', CASE WHEN clock > number THEN clock ELSE number + {LEAP} END) FROM (SELECT "
        "nextval('{sequence}') AS number, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS clock) AS now;"
        " PREPARE interlock_attempt(bigint) AS "
        "SELECT CASE WHEN pg_try_advisory_lock($1) THEN nextval('{sequence}') END; "
        "PREPARE interlock_attempt_shared(bigint) AS "
        "SELECT CASE WHEN pg_try_advisory_lock_shared($1) THEN nextval('{sequence}') END; "
        "PREPARE interlock_give_back AS SELECT pg_advisory_unlock_all()"
    ),
}
SERVER_SETTINGS = {
    "statement_timeout": 0,
    "lock_timeout": 0,
    "idle_session_timeout": 0,
    "idle_in_transaction_session_timeout": 0,
    "transaction_timeout": 0,
    "default_transaction_isolation": "read committed",  # a long serializable transaction costs the server memory
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "on",
    "tcp_keepalives_idle": KEEPALIVE_IDLE,
    "tcp_keepalives_interval": KEEPALIVE_INTERVAL,
    "tcp_keepalives_count": KEEPALIVE_COUNT,
    "tcp_user_timeout": 20_000,
}
SETTINGS_STATEMENT = "SET TRANSACTION NOT DEFERRABLE; "
SETTINGS_STATEMENT += "SELECT set_config(name, CASE name {} END, false) FROM pg_settings".format(
    " ".join(f"WHEN '{name}' THEN '{value}'" for name, value in SERVER_SETTINGS.items())
) + f" WHERE name IN {tuple(SERVER_SETTINGS)}"  # an old server does not know all of them  # fmt: skip
NOTICE_THE_END = "SET client_connection_check_interval = 1000"  # milliseconds; some systems refuse it

FOREVER = 2_000_000  # seconds; MariaDB answers NULL to -1
MARIA = {
    "attempt": "SELECT IF(GET_LOCK('{name}', 0) = 1, NEXTVAL({sequence}), NULL)",
    "wait": f"SELECT IF(GET_LOCK('{{name}}', {FOREVER}) = 1, 'apart', NULL)",
    # Not within "wait": a waiting statement that uses a table blocks a backup, which then blocks all writers.
    "fence": "SELECT NEXTVAL({sequence})",
    "give back": "SELECT RELEASE_LOCK('{name}')",
    "ping": "SELECT 1",
    "break off": "KILL QUERY {pid}",
    "end": "KILL {pid}",  # for people
    # Waiters are shown to the same user, or to a user with the privilege PROCESS.
    "look": (
        "SELECT IS_USED_LOCK('{name}') AS id, 't', 'ExclusiveLock', NULL, NULL FROM DUAL HAVING id IS NOT NULL "
        "UNION ALL SELECT ID, 'f', 'ExclusiveLock', NULL, NULL FROM information_schema.PROCESSLIST "
        "WHERE STATE = 'User lock' AND LOCATE('{name}', INFO) > 0"
    ),
    "about": (
        "SELECT VERSION(), 'no limit of its own', @@global.tcp_keepalive_time, @@global.tcp_keepalive_interval, "
        "@@global.tcp_keepalive_probes"
    ),
    "first": (
        # "+ 0": a pooler answers the plain function itself
        "SELECT CONNECTION_ID() + 0, @@global.read_only, (SELECT VARIABLE_VALUE FROM "
        "information_schema.GLOBAL_VARIABLES WHERE VARIABLE_NAME = 'wsrep_on')"
    ),
    "settings": (
        "SET SESSION wait_timeout = 31536000, interactive_timeout = 31536000, max_statement_time = 0, autocommit = 1"
    ),
    "writes": "SET SESSION TRANSACTION READ WRITE",  # NEXTVAL fails in a read-only transaction
    "now": "SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
    "make": "",
    "allow": "GRANT SELECT, INSERT ON {sequence} TO your_user",
    "drop": "DROP SEQUENCE IF EXISTS {sequence}",
}

POOLED = (
    "A pooler in front of the server may share one session among clients, so another client would get an advisory "
    "lock. Connect past the pooler, or use the locks of a table (postgresql://, mysql://)."
)
REPLICA = "This PostgreSQL is a replica; its locks are invisible to others. Connect to the primary."
_TABLES = "Use the locks of a table instead: mysql:// or mariadb://."


def refused_version(version: str) -> str:
    """Return why a server of this version can't be used for GET_LOCK; "" if it can."""
    if "vitess" in version.lower():
        return f"Vitess spreads sessions, and GET_LOCK with them, over servers. {_TABLES}"
    return "" if "mariadb" in version.lower() else f"{version} is not MariaDB, and is not tested. {_TABLES}"


def refused_server(read_only: str | None, wsrep: str | None) -> str:
    """Return why a server with these settings can't be used for GET_LOCK; "" if it can."""
    if wsrep in ("1", "ON"):
        return f"In a Galera cluster only one node knows a GET_LOCK. {_TABLES}"
    if read_only in ("0", "OFF"):
        return ""
    return "This server is read-only, like a replica. Connect to the primary."
