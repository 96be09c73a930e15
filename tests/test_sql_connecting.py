"""How connections to databases are begun: what URLs say reaches the driver."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pymysql
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine

import interlock
from interlock.core.errors import StoreError
from interlock.stores.advisory.options import options_of as advisory_options
from interlock.stores.postgresql.factory import options_of


def take(target: Any) -> None:
    with interlock.connect(target) as locks:
        locks.lock("a").acquire(timeout=0)


async def atake(target: Any) -> None:
    async with interlock.aconnect(target) as locks:
        await locks.lock("a").acquire(timeout=0)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_libpq_gets_each_option_of_a_url_as_it_stands_there(scheme: str) -> None:
    query = "options=-c%20work_mem%3D5MB&sslrootcert=/my%20certs/c+a.pem&password=a%20b+c"
    url = urlsplit(f"{scheme}://me@h/db?{query}")
    given = advisory_options(url).conninfo if "advisory" in scheme else options_of(url)[1]
    found = conninfo_to_dict(given)
    wanted = conninfo_to_dict(f"postgresql://me@h/db?{query}")
    assert {name: found[name] for name in wanted} == wanted


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory"])
def test_the_last_at_ends_the_password_on_all_stores(scheme: str) -> None:
    url = urlsplit(f"{scheme}://me:s3@cret@h/db")
    found = conninfo_to_dict(advisory_options(url).conninfo if "advisory" in scheme else options_of(url)[1])
    assert (found["password"], found["host"]) == ("s3@cret", "h")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+advisory", "mysql", "mysql+advisory"])
def test_a_host_name_that_there_can_not_be_is_told(scheme: str) -> None:
    url = f"{scheme}://me@a..b/db"
    with pytest.raises(StoreError, match="can't be reached"):
        take(url)
    with pytest.raises(StoreError, match="can't be reached"):
        asyncio.run(atake(url))


@pytest.fixture
def arguments(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What PyMySQL is told; it then wants another package for it."""
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


def test_a_package_that_the_login_of_an_engine_needs_is_named() -> None:
    def connect() -> None:
        raise RuntimeError("'cryptography' package is required for sha256_password")

    with pytest.raises(StoreError, match="pip install cryptography"):
        take(create_engine("mysql+pymysql://", creator=connect))


@pytest.mark.parametrize("scheme", ["mysql", "mysql+advisory"])
def test_a_password_of_mysql_is_sent_in_utf_8(scheme: str, arguments: list[dict[str, Any]]) -> None:
    with pytest.raises(StoreError):
        take(f"{scheme}://me:p%C3%A4%E2%82%AC@127.0.0.1:1/my%20db")
    assert (arguments[0]["password"], arguments[0]["database"]) == ("pä€".encode(), "my db")
