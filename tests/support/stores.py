"""The table of stores on which all contract tests run: a new store is one more row."""

import atexit
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import uuid4

from interlock.api.connect import open_store
from interlock.stores.mysql import ddl as table_of_mysql
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.store_fixture import StoreFixture
from tests.servers import EtcdServer, MariaServer, PostgresServer, RedisServer, SeaweedServer, need
from tests.servers.dynamo import DynaliteServer
from tests.servers.server import Server
from tests.support.brief_share import BriefShareStore
from tests.support.memory_records import MemoryRecords, RecordsStore
from tests.support.text_store import Texts, TextStore


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
    place: Callable[[Path], StoreFixture]
    reaches_processes: bool = False
    frees_at_death: bool = False
    twin: bool = False


S = TypeVar("S", bound=Server)


@cache
def _running(kind: str, make: Callable[[], S]) -> S:
    """Return the private server of this process; it ends with it.

    Args:
        kind: as for `need`.
        make: starts it; equal ones share one server.
    """
    need(kind)
    server = make()
    atexit.register(server.close)
    return server


CROWDED = {"max_connections": "700"}
"""For stores that need a session for each of hundreds of locks."""
crowded_postgres = partial(PostgresServer, config=CROWDED)
crowded_mariadb = partial(MariaServer, config=CROWDED)
redis_servers: dict[str, Callable[[], RedisServer]] = {
    "valkey": partial(RedisServer, "valkey"),
    "redis": partial(RedisServer, "redis"),
}


def _at(url: str, **how: Any) -> StoreFixture:
    """Return the place of a URL, which other processes can open too."""
    return StoreFixture(
        open=lambda: open_store(url), url=url, open_for_tasks=lambda: open_store(url, tasks=True), **how
    )  # fmt: skip


def _memory(folder: Path) -> StoreFixture:
    url = f"memory://{uuid4().hex}"
    return StoreFixture(open=lambda: open_store(url))


def _file(folder: Path) -> StoreFixture:
    return _at(f"file://{folder / 'locks'}", frees_at_death=True)


@cache
def _howto() -> Any:
    """Return the module of the store that a page of docs shows."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "third-party-store.md"
    module = ModuleType("toy_store")
    code = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)[0]
    exec(compile(code, f"{page}: toy_store.py", "exec"), vars(module))
    return module


def _third_party(folder: Path) -> StoreFixture:
    url = urlsplit(f"toy://{uuid4().hex}")
    return StoreFixture(open=lambda: _howto().ToyStore.from_url(url))


def _records(folder: Path) -> StoreFixture:
    records = MemoryRecords()
    return StoreFixture(open=lambda: RecordsStore(records))


def _redis(kind: str) -> Callable[[Path], StoreFixture]:
    def place(folder: Path) -> StoreFixture:
        server = _running(kind, redis_servers[kind])
        server.command("FLUSHALL")
        return _at(server.url)

    return place


def _postgresql(folder: Path) -> StoreFixture:
    from psycopg import connect

    url, table = _running("postgres", PostgresServer).url, f"t{uuid4().hex}"
    with connect(url, autocommit=True) as connection:
        connection.execute(ddl(table).encode())  # before the test: it may take as long as a short lease
    return _at(f"{url}?table={table}")


def _texts(folder: Path) -> StoreFixture:
    texts = Texts()
    return StoreFixture(open=lambda: TextStore(texts))


def _sqlite(folder: Path) -> StoreFixture:
    return _at(f"sqlite:///{folder / 'locks.db'}")


_VALKEY = ("valkey", "valkeys", "valkey+sentinel", "valkeys+sentinel", "valkey+cluster", "valkeys+cluster")
_REDIS = ("redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster", "unix")


def _advisory(folder: Path) -> StoreFixture:
    url = _running("postgres", crowded_postgres).url.replace("postgresql:", "postgresql+advisory:")
    return _at(f"{url}?max_sessions=320", frees_at_death=True)


def _get_lock(folder: Path) -> StoreFixture:
    url = _running("mariadb", crowded_mariadb).url.replace("mysql:", "mysql+advisory:")
    return _at(f"{url}?max_sessions=320", frees_at_death=True)


def _mysql(folder: Path) -> StoreFixture:
    server, table = _running("mariadb", MariaServer), f"t{uuid4().hex}"
    server.ask(table_of_mysql(table))  # before the test, as for PostgreSQL
    return _at(f"{server.url}?table={table}")


def _etcd(folder: Path) -> StoreFixture:
    return _at(f"{_running('etcd', EtcdServer).url}/{uuid4().hex}")


def _s3(folder: Path) -> StoreFixture:
    # HTTP dates have whole seconds.
    return _at(_running("seaweedfs", SeaweedServer).at(uuid4().hex), clock_error=1.0)


def _dynamodb(folder: Path) -> StoreFixture:
    server, table = _running("dynalite", DynaliteServer), uuid4().hex
    server.create(table)  # before the test, as for PostgreSQL
    return _at(server.at(table), clock_error=1.5)  # HTTP dates have whole seconds


def _bucket(folder: Path) -> StoreFixture:
    """A bucket in the memory of this process, whose clock is more precise than a second."""
    from obstore.store import MemoryStore

    bucket = MemoryStore()
    return StoreFixture(open=lambda: open_store(bucket))


def _share(folder: Path) -> StoreFixture:
    (folder / "locks").mkdir()
    return StoreFixture(open=lambda: BriefShareStore(str(folder / "locks")))


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
    Row("third-party", (), _third_party),
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
    Row("dynamodb", ("dynamodb",), _dynamodb, reaches_processes=True),
    Row("bucket in memory", (), _bucket, twin=True),
    Row("share", ("share",), _share),
]
