"""Connecting to databases: the options of URLs and engines reach the driver, and there is a deadline."""

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import SplitResult, urlsplit

import pymysql
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
from interlock.core.errors import InvalidArgument, StoreError
from interlock.stores.advisory.session import options_of as advisory_options
from interlock.stores.postgresql.options import options_of

AT_MOST = 15.0  # seconds; three times the time-out


def take(target: Any) -> None:
    with interlock.connect(target) as locks:
        locks.lock("a").acquire(timeout=0)


async def atake(target: Any) -> None:
    async with interlock.aconnect(target) as locks:
        await locks.lock("a").acquire(timeout=0)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield listening.getsockname()[1]


def test_an_engine_waits_for_a_silent_server_as_long_as_a_url(silent: int) -> None:
    def engine(scheme: str) -> Any:
        return create_engine(f"{scheme}://me@127.0.0.1:{silent}/db")

    tasks = create_async_engine(f"postgresql+psycopg://me@127.0.0.1:{silent}/db")
    calls = [
        lambda: take(engine("mysql+pymysql")),
        lambda: asyncio.run(atake(engine("mysql+pymysql"))),
        lambda: take(engine("postgresql+psycopg")),
        lambda: asyncio.run(atake(tasks)),
    ]
    pool = ThreadPoolExecutor()
    for done in [pool.submit(call) for call in calls]:
        assert isinstance(done.exception(AT_MOST), StoreError)
    pool.shutdown()


def told_to_libpq(url: SplitResult) -> dict[str, Any]:
    """Return the options that libpq gets from a URL."""
    if url.scheme == "postgresql":
        return options_of(url).arguments()
    return dict(advisory_options(url).arguments)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_libpq_gets_each_option_of_a_url_as_it_stands_there(scheme: str) -> None:
    query = "options=-c%20work_mem%3D5MB&sslrootcert=/my%20certs/c+a.pem&password=a%20b+c"
    url = urlsplit(f"{scheme}://me@h/db?{query}")
    found = told_to_libpq(url)
    wanted = conninfo_to_dict(f"postgresql://me@h/db?{query}")
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("scheme", ["postgresql+advisory", "mysql+advisory", "mariadb+advisory"])
@pytest.mark.parametrize(("name", "value"), [("max_sessions", "7"), ("sequence", "fences")])
def test_a_repeated_option_of_advisory_locks_is_refused(scheme: str, name: str, value: str) -> None:
    with pytest.raises(InvalidArgument, match=f"give {name} exactly one value") as refused:
        advisory_options(urlsplit(f"{scheme}://me:secret@h/db?{name}={value}&{name}={value}"))
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_the_last_at_ends_the_password_on_all_stores(scheme: str) -> None:
    url = urlsplit(f"{scheme}://me:s3@cret@h/db")
    found = told_to_libpq(url)
    assert (found["password"], found["host"]) == ("s3@cret", "h")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory", "mysql", "mysql+advisory"])
def test_a_host_name_that_there_can_not_be_is_told(scheme: str) -> None:
    url = f"{scheme}://me@a..b/db"
    with pytest.raises(StoreError, match="Cannot connect to"):
        take(url)
    with pytest.raises(StoreError, match="Cannot connect to"):
        asyncio.run(atake(url))


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of PyMySQL, which then requires another package."""
    seen: list[dict[str, Any]] = []

    def connect(**given: Any) -> None:
        seen.append(given)
        raise RuntimeError("'cryptography' package is required for sha256_password")

    monkeypatch.setattr(pymysql, "connect", connect)
    return seen


@pytest.mark.parametrize("scheme", ["mysql", "mysql+advisory"])
def test_a_package_that_a_login_needs_is_named(scheme: str, arguments: list[dict[str, Any]]) -> None:
    with pytest.raises(StoreError, match="pip install cryptography"):
        take(f"{scheme}://me:x@127.0.0.1:1/db")


@pytest.mark.parametrize("scheme", ["mysql", "mysql+advisory"])
def test_a_password_of_mysql_is_sent_in_utf_8(scheme: str, arguments: list[dict[str, Any]]) -> None:
    with pytest.raises(StoreError):
        take(f"{scheme}://me:p%C3%A4%E2%82%AC@127.0.0.1:1/my%20db")
    assert (arguments[0]["password"], arguments[0]["database"]) == ("pä€".encode(), "my db")
