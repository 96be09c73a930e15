"""Stores as a run of torture strikes them: private servers behind a proxy, and files."""

import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]

from interlock.stores.sql.ddl import ddl
from interlock.stores.sql.mysql import ddl as ddl_of_mysql
from interlock.testing.torture import Plan, Verdict, judge, run
from interlock.testing.torture.faults import possible
from interlock.testing.torture.history import read
from tests.servers import MariaServer, PostgresServer, RedisServer
from tests.servers.proxy import Proxy

STORES = ("file", "sqlite", "valkey", "redis", "postgresql", "mariadb", "django")
IO = 2.0  # seconds that one request takes at most
NO_DISK = {"appendfsync": "no"}  # a killed server has written what it answered; a busy disk is no fault of this run
CONFIG = {"authentication_timeout": "2s"}  # a kill waits for backends in the middle of it, one minute by default
SLOW = {"sqlite": 5.0}
"""Of stores whose URL does not say IO: seconds that one request takes at most."""
ORM = {"connect": "tests.support.torture_orm:connect", "aconnect": "tests.support.torture_orm:aconnect"}
UNHEARD = ("forget",)
"""What Django's store is not struck by: its drivers wait for an answer without end, as they do for the site."""


class TorturedServer:
    """A private server and the network before it; use it as a context manager.

    Args:
        kind: "valkey", "redis", "postgresql", "mariadb", or "django", which is its ORM on PostgreSQL.

    Attributes:
        url: of the store, through the proxy.
        network: the proxy.
        keeps_data: True, since a restart forgets nothing.
    """

    def __init__(self, kind: str) -> None:
        self._server: PostgresServer | RedisServer | MariaServer
        self.keeps_data = True
        if kind in ("postgresql", "django"):
            self._server = PostgresServer(config=CONFIG)
        elif kind == "mariadb":
            self._server = MariaServer()
        else:
            self._server = RedisServer("redis" if kind == "redis" else "valkey", persist=True, config=NO_DISK)
        self.network = Proxy(self._server.host, self._server.port)
        self.url = f"{kind}://{self.network.host}:{self.network.port}"
        try:
            if not isinstance(self._server, RedisServer):
                self._make_tables(kind, self._server)
        except BaseException:
            self.__exit__()
            raise

    def _make_tables(self, kind: str, server: PostgresServer | MariaServer) -> None:
        there = f"{server.user}@{self.network.host}:{self.network.port}/{server.database}"
        self.url = f"{kind}://{there}?timeout={IO:g}"
        if kind == "django":
            self.url = f"postgresql://{there}"
            subprocess.run([sys.executable, "-m", "tests.support.torture_orm", self.url], check=True)
        elif isinstance(server, PostgresServer):
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute(ddl(grace=Plan.ttl).encode())  # the longest lease of a run; 30 s unless said
        else:
            with pymysql.connect(
                host=server.host, port=server.port, user=server.user, database=server.database
            ) as connection:
                connection.cursor().execute(ddl_of_mysql())

    @property
    def cant(self) -> tuple[str, ...]:
        """What it can't be struck by: to delete the data of a database is to drop what its administrator made."""
        if isinstance(self._server, RedisServer):
            return ()
        return ("wipe", "empty") if isinstance(self._server, PostgresServer) else ("wipe", "empty", "deafen")

    def pause(self) -> None:
        """As `Server.pause`."""
        self._server.pause()

    def resume(self) -> None:
        """As `Server.resume`."""
        self._server.resume()

    def restart(self) -> None:
        """As `Server.restart`."""
        self._server.restart()

    def wipe(self) -> None:
        """Delete all data."""
        if isinstance(self._server, RedisServer):
            self._server.command("FLUSHALL")

    def empty(self) -> None:
        """As `Server.empty`."""
        self._server.kill()
        shutil.rmtree(self._server.folder / "appendonlydir", ignore_errors=True)
        (self._server.folder / "appendonly.aof").unlink(missing_ok=True)
        self._server.start()

    def deafen(self) -> None:
        """As `Server.deafen`."""
        if isinstance(self._server, RedisServer):
            self._server.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        elif isinstance(self._server, PostgresServer):
            with psycopg.connect(self._server.url, autocommit=True) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ILIKE 'LISTEN%'"
                )

    def left(self) -> dict[str, list[str]]:
        """As `Server.left`."""
        if isinstance(self._server, RedisServer):
            with self._server.wire() as wire:
                keys = [key for key in wire.ask("KEYS", "*") if wire.ask("PTTL", key) == -1]
                clients = wire.ask("CLIENT", "LIST").splitlines()
            return {"keys": keys, "connections": [each for each in clients if " cmd=client" not in each]}
        if isinstance(self._server, PostgresServer):
            with psycopg.connect(self._server.url) as connection:
                found = connection.execute(
                    "SELECT pid, query FROM pg_stat_activity"
                    " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
                ).fetchall()
        else:
            host, port, user = self._server.host, self._server.port, self._server.user
            with pymysql.connect(host=host, port=port, user=user) as connection:
                cursor = connection.cursor()
                cursor.execute(
                    "SELECT id, info FROM information_schema.processlist"
                    " WHERE id <> CONNECTION_ID() AND command <> 'Daemon' AND user <> 'system user'"
                )
                found = cursor.fetchall()
        return {"connections": [str(each) for each in found]}

    def __enter__(self) -> "TorturedServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.network.close()
        self._server.close()


def tortured(kind: str, folder: Path, **how: Any) -> Verdict:
    """Run one store with every fault that it can have; return what the judge says.

    Args:
        kind: one of STORES.
        folder: an empty one, for the store and the history.
        how: of the plan.
    """
    local = {"file": f"file://{folder / 'locks'}", "sqlite": f"sqlite:///{folder / 'locks.db'}"}.get(kind)
    with nullcontext() if local else TorturedServer(kind) as server:
        url = local or (server.url if server else "")
        faults = possible(url, "both", server)
        if server is not None:
            faults = [name for name in faults if name not in server.cant]
        if kind == "django":
            faults = [name for name in faults if name not in UNHEARD]
            how |= ORM
        plan = Plan(
            url, faults=tuple(faults), io=SLOW.get(kind, IO), frees_at_death=kind == "file", **how
        )  # fmt: skip
        return judge(read(run(plan, folder / "run", server)))
