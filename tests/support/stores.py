"""The table of stores on which all contract tests run: a new store is one more row."""

import atexit
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from interlock.client.connect import open_store
from interlock.stores.mysql import ddl as table_of_mysql
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.world import Place
from tests.servers import EtcdServer, MariaServer, PostgresServer, RedisServer, SeaweedServer, need
from tests.servers.redis_server import Kind
from tests.support.records import MemoryRecords, RecordsStore
from tests.support.texts import Texts, TextStore


@dataclass(frozen=True)
class Row:
    """One store.

    Attributes:
        name: the name of the store in the names of tests.
        schemes: its URL schemes; none for a store that exists only for tests.
        place: makes an empty place for locks; gets an empty folder.
        reaches_processes: True if other processes can see its locks.
        frees_at_death: True if the locks of a killed process are released at once, False if their leases must expire.
        twin: True if it is the code of the row before on another kind of server.
    """

    name: str
    schemes: tuple[str, ...]
    place: Callable[[Path], Place]
    reaches_processes: bool = False
    frees_at_death: bool = False
    twin: bool = False


def _memory(folder: Path) -> Place:
    url = f"memory://{uuid4().hex}"
    return Place(open=lambda: open_store(url))


def _file(folder: Path) -> Place:
    url = f"file://{folder / 'locks'}"
    return Place(open=lambda: open_store(url), url=url, frees_at_death=True)


def _records(folder: Path) -> Place:
    records = MemoryRecords()
    return Place(open=lambda: RecordsStore(records))


@cache
def _server(kind: Kind) -> RedisServer:
    """Return the private server of this process; it ends with it."""
    need(kind)
    server = RedisServer(kind)
    server.start()
    atexit.register(server.close)
    return server


def _redis(kind: Kind) -> Callable[[Path], Place]:
    def place(folder: Path) -> Place:
        server = _server(kind)
        server.command("FLUSHALL")
        url = server.url
        return Place(
            open=lambda: open_store(url),
            url=url,
            open_for_tasks=lambda: open_store(url, tasks=True),
        )

    return place


@cache
def _postgres() -> PostgresServer:
    """Return the private server of this process; it ends with it."""
    need("postgres")
    server = PostgresServer()
    atexit.register(server.close)
    return server


def _postgresql(folder: Path) -> Place:
    from psycopg import connect

    table = f"t{uuid4().hex}"
    with connect(_postgres().url, autocommit=True) as connection:
        connection.execute(ddl(table).encode())  # before the test: it may take as long as a short lease
    url = f"{_postgres().url}?table={table}"
    return Place(
        open=lambda: open_store(url),
        url=url,
        open_for_tasks=lambda: open_store(url, tasks=True),
    )


def _texts(folder: Path) -> Place:
    texts = Texts()
    return Place(open=lambda: TextStore(texts))


def _sqlite(folder: Path) -> Place:
    url = f"sqlite:///{folder / 'locks.db'}"
    return Place(
        open=lambda: open_store(url),
        url=url,
        open_for_tasks=lambda: open_store(url, tasks=True),
    )


_VALKEY = ("valkey", "valkeys", "valkey+sentinel", "valkeys+sentinel", "valkey+cluster", "valkeys+cluster")
_REDIS = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix")


@cache
def _crowded_postgres() -> PostgresServer:
    """As `_postgres`, for stores that need a session for each of hundreds of locks."""
    need("postgres")
    server = PostgresServer(config={"max_connections": "700"})
    atexit.register(server.close)
    return server


def _advisory(folder: Path) -> Place:
    url = _crowded_postgres().url.replace("postgresql:", "postgresql+advisory:") + "?max_sessions=320"
    return Place(open=lambda: open_store(url), url=url, frees_at_death=True)


@cache
def _mariadb() -> MariaServer:
    need("mariadb")
    server = MariaServer()
    server.start()
    atexit.register(server.close)
    return server


@cache
def _crowded_mariadb() -> MariaServer:
    need("mariadb")
    server = MariaServer(config={"max_connections": "700"})
    server.start()
    atexit.register(server.close)
    return server


def _get_lock(folder: Path) -> Place:
    url = _crowded_mariadb().url.replace("mysql:", "mysql+advisory:") + "?max_sessions=320"
    return Place(open=lambda: open_store(url), url=url, frees_at_death=True)


def _mysql(folder: Path) -> Place:
    from pymysql import connect  # type: ignore[import-untyped]

    server, table = _mariadb(), f"t{uuid4().hex}"
    with connect(host=server.host, port=server.port, user=server.user, database=server.database) as connection:
        connection.cursor().execute(table_of_mysql(table))  # before the test, as for PostgreSQL
    url = f"{server.url}?table={table}"
    return Place(open=lambda: open_store(url), url=url)


@cache
def _etcd_server() -> EtcdServer:
    need("etcd")
    server = EtcdServer()
    atexit.register(server.close)
    return server


def _etcd(folder: Path) -> Place:
    url = f"{_etcd_server().url}/{uuid4().hex}"
    return Place(open=lambda: open_store(url), url=url)


@cache
def _seaweed() -> SeaweedServer:
    need("seaweedfs")
    server = SeaweedServer()
    atexit.register(server.close)
    return server


def _s3(folder: Path) -> Place:
    url = _seaweed().at(uuid4().hex)
    return Place(open=lambda: open_store(url), url=url, clock_error=1.0)  # HTTP dates have whole seconds


def _bucket(folder: Path) -> Place:
    """A bucket in the memory of this process, whose clock is more precise than a second."""
    from obstore.store import MemoryStore

    bucket = MemoryStore()
    return Place(open=lambda: open_store(bucket))


PARTIAL_ROWS = [
    Row("postgresql+advisory", ("postgresql+advisory",), _advisory, reaches_processes=True, frees_at_death=True),
    Row(
        "mysql+advisory",
        ("mysql+advisory", "mariadb+advisory"),
        _get_lock,
        reaches_processes=True,
        frees_at_death=True,
    ),
]
"""Stores that lack some kinds of locks; tests/advisory runs the contract tests that apply to them."""

ROWS = [
    Row("memory", ("memory",), _memory),
    Row("file", ("file",), _file, reaches_processes=True, frees_at_death=True),
    Row("records", (), _records),
    Row("valkey", _VALKEY, _redis("valkey"), reaches_processes=True),
    Row("redis", _REDIS, _redis("redis"), reaches_processes=True, twin=True),
    Row("texts that are swapped", (), _texts),
    Row("postgresql", ("postgresql", "postgresql+psycopg"), _postgresql, reaches_processes=True),
    Row("sqlite", ("sqlite", "sqlite+pysqlite", "sqlite+aiosqlite"), _sqlite, reaches_processes=True),
    Row(
        "mariadb",
        ("mysql", "mariadb", "mysql+pymysql", "mariadb+pymysql"),
        _mysql,
        reaches_processes=True,
    ),
    Row("etcd", ("etcd", "etcds"), _etcd, reaches_processes=True),
    Row("s3", ("s3", "gs", "az"), _s3, reaches_processes=True),
    Row("bucket in memory", (), _bucket, twin=True),
]
