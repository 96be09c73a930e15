"""Servers of both databases, and another client on each, with plain SQL."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]

from interlock.stores.advisory.session_manager import number_of
from interlock.testing.waiting import eventually
from tests.servers import MariaServer, PostgresServer, serving


def started(kind: str) -> Iterator[Any]:
    """For a fixture: yield a server, and end it afterwards."""
    yield from serving("postgres", PostgresServer) if kind == "postgresql" else serving("mariadb", MariaServer)


def url_of(server: Any, options: str = "") -> str:
    """The URL of advisory locks on a server."""
    return str(server.url.replace(":", "+advisory:", 1)) + options


class OnPostgres:
    """Another client of PostgreSQL.

    Args:
        server: the server.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._connection = psycopg.connect(server.url, autocommit=True)
        self.number = self._connection.info.backend_pid

    def ask(self, statement: str) -> list[Any]:
        """Return the first column of the rows of a statement."""
        cursor = self._connection.execute(statement.encode())
        return [row[0] for row in cursor.fetchall()] if cursor.description else []

    def lock(self, name: str) -> None:
        """Take a lock, or wait for it."""
        self.ask(f"SELECT pg_advisory_lock({number_of(chr(0) + name)})")

    def unlock(self, name: str) -> None:
        """Give it back."""
        self.ask(f"SELECT pg_advisory_unlock({number_of(chr(0) + name)})")

    def locks(self, granted: bool = True) -> list[int]:
        """The sessions that hold a lock, or wait for one; a waiter also has a ticket, of two integers."""
        ticket = "" if granted else "OR (objsubid = 2 AND mode = 'ExclusiveLock')"
        return self.ask(
            "SELECT DISTINCT pid FROM pg_locks "
            f"WHERE locktype = 'advisory' AND ((objsubid = 1 AND granted = {granted}) {ticket})"
        )

    def sessions(self) -> list[int]:
        """The sessions of interlock."""
        return self.ask("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'interlock%'")

    def cancel(self, session: int) -> None:
        """Cancel the statement of a session."""
        self.ask(f"SELECT pg_cancel_backend({session})")

    def kill(self, session: int) -> None:
        """End a session."""
        self.ask(f"SELECT pg_terminate_backend({session})")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class OnMaria:
    """Another client of MariaDB; as `OnPostgres`.

    Args:
        server: the server.
    """

    def __init__(self, server: MariaServer) -> None:
        self._connection = pymysql.connect(host=server.host, port=server.port, user=server.user, autocommit=True)
        self.number = self._connection.thread_id()
        self._names: set[str] = set()

    def ask(self, statement: str) -> list[Any]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement)
            return [row[0] for row in cursor.fetchall()]

    def name(self, name: str) -> str:
        """The server's name of a lock."""
        self._names.add(name)
        return f"interlock_{number_of(chr(0) + name) & (1 << 64) - 1:016x}"

    def lock(self, name: str) -> None:
        assert self.ask(f"SELECT GET_LOCK('{self.name(name)}', 60)") == [1]

    def unlock(self, name: str) -> None:
        self.ask(f"SELECT RELEASE_LOCK('{self.name(name)}')")

    def locks(self, granted: bool = True) -> list[int]:
        if granted:
            found = [self.ask(f"SELECT IS_USED_LOCK('{self.name(each)}')")[0] for each in ("book", *self._names)]
            return [each for each in found if each is not None]
        return self.ask("SELECT id FROM information_schema.processlist WHERE state = 'User lock'")

    def sessions(self) -> list[int]:
        ours = f"id <> {self.number} AND user <> 'system user' AND command <> 'Daemon'"
        return self.ask(f"SELECT id FROM information_schema.processlist WHERE {ours}")

    def cancel(self, session: int) -> None:
        self.ask(f"KILL QUERY {session}")

    def kill(self, session: int) -> None:
        with suppress(pymysql.OperationalError):  # it ended by itself
            self.ask(f"KILL {session}")

    def close(self) -> None:
        self._connection.close()


def cut_off(there: Any) -> None:
    """Stop the replication to a replica of PostgreSQL, by a connection to it."""
    there.execute("ALTER SYSTEM SET primary_conninfo = ''")
    there.execute("SELECT pg_reload_conf()")
    eventually(lambda: not there.execute("SELECT FROM pg_stat_wal_receiver").fetchall())


def somebody_on(server: Any) -> Any:
    """Return another client of a server."""
    return OnPostgres(server) if isinstance(server, PostgresServer) else OnMaria(server)
