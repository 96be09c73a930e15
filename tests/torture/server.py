"""Private servers for torture tests, each behind a proxy."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import psycopg
import pymysql  # type: ignore[import-untyped]

from interlock.stores.mysql import ddl as ddl_of_mysql
from interlock.stores.postgresql.ddl import ddl
from tests.servers import (
    REPLICATED,
    EtcdCluster,
    EtcdServer,
    MariaReplica,
    MariaServer,
    PostgresReplica,
    PostgresServer,
    Proxy,
    RedisServer,
    Stepped,
)
from tests.servers.dynamo import DynaliteServer
from tests.servers.server import Server
from tests.torture.faults import FAULTS, StruckServer
from tests.torture.plan import IO, Plan, promises_of

NO_DISK = {"appendfsync": "no"}  # a killed server has still written its data; a slow disk is not a fault to inject
CONFIG = {"authentication_timeout": "2s"}  # a kill waits for backends that authenticate, one minute by default
ORM = {"connect": "tests.torture.orm:connect", "aconnect": "tests.torture.orm:aconnect"}
NETWORK = tuple(name for name, fault in FAULTS.items() if fault.where == "network")
CLOCK = ("ahead", "behind")
SESSION_ENDS = ("restart", "deafen", "failover", "cut", "forget", "hole", "drop")
"""The faults that end sessions, and with them their advisory locks."""


class SteppedRedis(Stepped, RedisServer):
    """Redis or Valkey with a clock that can be set."""


class SteppedPostgres(Stepped, PostgresServer):
    """PostgreSQL with a clock that can be set."""


class SteppedReplica(Stepped, PostgresReplica):
    """A replica of PostgreSQL with a clock that can be set."""


class SteppedMaria(Stepped, MariaServer):
    """MariaDB with a clock that can be set."""


class SteppedMariaReplica(Stepped, MariaReplica):
    """A replica of MariaDB with a clock that can be set."""


class Tortured(StruckServer):
    """A private server and a proxy before it; use it as a context manager.

    Args:
        server: the server to strike.
    """

    can: Collection[str] = ("pause", "restart", *NETWORK)

    def __init__(self, server: Server) -> None:
        self._server = server
        self.network = Proxy(server.host, server.port)
        self.how = {}
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise
        self.how = promises_of(self.url) | self.how

    def _prepare(self) -> None:
        """Create the tables of the store, and set the URL."""
        raise NotImplementedError

    def pause(self) -> None:
        """As `faults.StruckServer.pause`."""
        self._server.pause()

    def resume(self) -> None:
        """As `faults.StruckServer.resume`."""
        self._server.resume()

    def restart(self) -> None:
        """As `faults.StruckServer.restart`."""
        self._server.restart()

    def _replica(self, stepped: bool) -> Any:
        """Return a new replica of the server."""
        raise NotImplementedError

    def fail_over(self) -> None:
        """As `faults.StruckServer.fail_over`: the proxy then leads to the replica, like a virtual IP address."""
        old = self._server
        replica = self._server = self._replica(isinstance(old, Stepped))
        try:
            if isinstance(old, Stepped) and isinstance(replica, Stepped):
                replica.step(old.ahead)
            old.kill()
            replica.promote()
            self.network.redirect(replica.host, replica.port)
        finally:
            old.close()

    def step(self, seconds: float) -> None:
        """As `faults.StruckServer.step`."""
        assert isinstance(self._server, Stepped)
        self._server.step(seconds)

    def close(self) -> None:
        """End both."""
        self.network.close()
        self._server.close()


class TorturedRedis(Tortured):
    """Redis or Valkey.

    Args:
        kind: "redis" or "valkey".
    """

    can = (*Tortured.can, *CLOCK, "wipe", "empty", "deafen")
    forgets = ("ahead",)
    _server: RedisServer

    def __init__(self, kind: Any) -> None:
        super().__init__(SteppedRedis(kind, persist=True, config=NO_DISK))

    def _prepare(self) -> None:
        self.url = f"{self._server.kind}://{self.network.host}:{self.network.port}"

    def wipe(self) -> None:
        """As `faults.StruckServer.wipe`."""
        self._server.command("FLUSHALL")

    def empty(self) -> None:
        """As `faults.StruckServer.empty`."""
        self._server.kill()
        shutil.rmtree(self._server.folder / "appendonlydir", ignore_errors=True)
        (self._server.folder / "appendonly.aof").unlink(missing_ok=True)
        self._server.start()

    def deafen(self) -> None:
        """As `faults.StruckServer.deafen`."""
        self._server.command("CLIENT", "KILL", "TYPE", "PUBSUB")

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`."""
        with self._server.wire() as wire:
            keys = [key for key in wire.ask("KEYS", "*") if wire.ask("PTTL", key) == -1]
            clients = wire.ask("CLIENT", "LIST").splitlines()
        return {"keys": keys, "connections": [each for each in clients if " cmd=client" not in each]}


class TorturedSql(Tortured):
    """A database; the fault "wipe" is not injected: its data are the tables that an administrator has made.

    Args:
        server: the server to strike.
        scheme: the scheme of the URL.
    """

    _server: PostgresServer | MariaServer

    def __init__(self, server: PostgresServer | MariaServer, scheme: str) -> None:
        self._scheme = scheme
        super().__init__(server)

    def _prepare(self) -> None:
        there = f"{self._server.user}@{self.network.host}:{self.network.port}/{self._server.database}"
        self.url = f"{self._scheme}://{there}"
        self._make_tables()

    def _make_tables(self) -> None:
        self.url += f"?timeout={IO:g}"
        self.how = {"io": IO}


class TorturedPostgres(TorturedSql):
    """PostgreSQL."""

    can = (*Tortured.can, *CLOCK, "deafen", "failover")
    forgets: Collection[str] = ("ahead",)
    listens = "query ILIKE 'LISTEN%'"
    """The processes whose connections `deafen` cuts."""
    _server: PostgresServer

    def _make_tables(self) -> None:
        super()._make_tables()
        with self._connection() as connection:
            connection.execute(ddl(grace=Plan.ttl).encode())  # the longest lease of a run; the default is 30 s

    def _connection(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self._server.url, autocommit=True)

    def deafen(self) -> None:
        """As `faults.StruckServer.deafen`."""
        with self._connection() as connection:
            connection.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {self.listens}".encode()
            )

    def _replica(self, stepped: bool) -> PostgresReplica:
        return (SteppedReplica if stepped else PostgresReplica)(self._server, config=CONFIG)

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`."""
        with self._connection() as connection:
            found = connection.execute(
                "SELECT pid, query FROM pg_stat_activity"
                " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
            locks = connection.execute("SELECT pid, objid FROM pg_locks WHERE locktype = 'advisory'").fetchall()
        return {"connections": [str(each) for each in found], "keys": [str(each) for each in locks]}


class TorturedAdvisory(TorturedPostgres):
    """Advisory locks of PostgreSQL; they do not depend on a clock."""

    can = tuple(name for name in TorturedPostgres.can if name not in CLOCK)
    forgets = SESSION_ENDS
    listens = "state = 'active' AND query ILIKE '%pg_advisory_lock%' AND pid <> pg_backend_pid()"

    def _make_tables(self) -> None:
        """Make nothing: the first session makes the sequence."""


class TorturedOrm(TorturedPostgres):
    """A site of Django on PostgreSQL, whose settings say where the database is."""

    def _make_tables(self) -> None:
        subprocess.run([sys.executable, "-m", "tests.torture.orm", self.url], check=True)
        super()._make_tables()  # the same functions, with a shorter grace
        self.how |= ORM


class TorturedMaria(TorturedSql):
    """MariaDB."""

    can = (*Tortured.can, *CLOCK, "failover")
    forgets: Collection[str] = ("ahead", "failover")  # a replica lags
    _server: MariaServer

    def _make_tables(self) -> None:
        super()._make_tables()
        self._server.ask(ddl_of_mysql())

    def _replica(self, stepped: bool) -> MariaReplica:
        return SteppedMariaReplica(self._server)

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`."""
        found = self._server.ask(
            "SELECT id, info FROM information_schema.processlist"
            " WHERE id <> CONNECTION_ID() AND command <> 'Daemon' AND user <> 'system user'"
        )
        return {"connections": [str(each) for each in found]}


class TorturedGetLock(TorturedMaria):
    """GET_LOCK of MariaDB."""

    can = (*Tortured.can, "deafen")
    forgets = SESSION_ENDS

    def _make_tables(self) -> None:
        """Make nothing: the first session makes the sequence."""

    def deafen(self) -> None:
        """As `faults.StruckServer.deafen`."""
        for row in self._server.ask("SELECT id FROM information_schema.processlist WHERE state = 'User lock'"):
            try:
                self._server.ask(f"KILL {row['id']}")
            except pymysql.OperationalError:  # the session has ended meanwhile
                pass


class Networks:
    """The proxies of several servers; a fault strikes all of them at once. It has the methods of `Proxy`."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self.proxies = [Proxy(server.host, server.port) for server in servers]

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda *args: [getattr(proxy, name)(*args) for proxy in self.proxies]


class TorturedEtcd(StruckServer):
    """Three members of etcd; use it as a context manager."""

    can: Collection[str] = ("pause", "restart", "failover", *NETWORK)
    forgets: Collection[str] = ("pause",)  # a former leader revokes leases that others extended: etcd issue 15247

    def __init__(self) -> None:
        # Long enough that load causes no election.
        self._cluster = EtcdCluster({"heartbeat-interval": "100", "election-timeout": "1000"})
        self.network = Networks(self._cluster.members)
        hosts = ",".join(f"{proxy.host}:{proxy.port}" for proxy in self.network.proxies)
        self.url = f"etcd://{hosts}"
        self.how = promises_of(self.url) | {"ttl": 2.0, "every": 1.0}
        self._paused: EtcdServer

    def pause(self) -> None:
        """As `faults.StruckServer.pause`, for the leader."""
        self._paused = self._cluster.leader()
        self._paused.pause()

    def resume(self) -> None:
        """As `faults.StruckServer.resume`."""
        self._paused.resume()
        self._cluster.until_there()

    def restart(self) -> None:
        """As `faults.StruckServer.restart`, for two members, so that there is no majority for a while."""
        leader = self._cluster.leader()
        lost = [leader, next(member for member in self._cluster.members if member is not leader)]
        for member in lost:
            member.kill()
        for member in lost:
            member.start()
        self._cluster.until_there()

    def fail_over(self) -> None:
        """As `faults.StruckServer.fail_over`; the old leader comes back."""
        old = self._cluster.leader()
        old.kill()
        self._cluster.until_there()
        old.start()

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`."""
        found = self._cluster.leader().ask("kv/range", key="AA==", range_end="AA==", keys_only=True)
        return {"keys": [str(each) for each in found.get("kvs", ())]}

    def close(self) -> None:
        """End all."""
        self.network.close()
        self._cluster.close()


class TorturedDynamo(Tortured):
    """Dynalite."""

    _server: DynaliteServer

    def _prepare(self) -> None:
        self._server.create("locks")
        here, there = (f"{each.host}:{each.port}" for each in (self._server, self.network))
        self.url = self._server.at("locks").replace(here, there)

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`; items without claims stay."""
        return {}


SERVERS: dict[str, Callable[[], Any]] = {
    "valkey": lambda: TorturedRedis("valkey"),
    "redis": lambda: TorturedRedis("redis"),
    "postgresql": lambda: TorturedPostgres(SteppedPostgres(config=CONFIG), "postgresql"),
    "postgresql+advisory": lambda: TorturedAdvisory(PostgresServer(config=CONFIG), "postgresql+advisory"),
    "mariadb": lambda: TorturedMaria(SteppedMaria(config=REPLICATED), "mariadb"),
    "mariadb+advisory": lambda: TorturedGetLock(MariaServer(), "mariadb+advisory"),
    "etcd": TorturedEtcd,
    "dynamodb": lambda: TorturedDynamo(DynaliteServer()),
    "django": lambda: TorturedOrm(SteppedPostgres(config=CONFIG), "postgresql"),
}
