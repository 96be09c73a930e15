"""A role with only the documented rights can do everything; without one of them the error tells what to grant."""

import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

import interlock
from interlock.core.errors import StoreError
from interlock.stores.postgresql.ddl import ddl
from interlock.testing.store_fixture import THREADS
from interlock.testing.waiting import WAIT_LIMIT, eventually
from tests.postgresql.conftest import Ask
from tests.servers import PostgresServer
from tests.support.client_actors import Side, side

TABLE = ["SELECT", "INSERT", "UPDATE", "DELETE"]
ALIVE = ["SELECT", "INSERT"]
ADVICE = (
    "GRANT this role SELECT, INSERT, UPDATE, DELETE on the table, SELECT, INSERT on the table …_alive, "
    "EXECUTE on the functions and USAGE on the schema"
)


@pytest.fixture
def table(ask: Ask) -> Iterator[str]:
    """A table of another owner in its own schema, and a role with the documented rights."""
    name = f"t{uuid4().hex}"
    ask(f"CREATE SCHEMA {name}")
    ask(ddl(name, name, grace=0))
    ask("CREATE ROLE plain LOGIN NOSUPERUSER")
    ask(f"GRANT USAGE ON SCHEMA {name} TO plain")
    ask(f"GRANT {', '.join(TABLE)} ON {name}.{name} TO plain")
    ask(f"GRANT {', '.join(ALIVE)} ON {name}.{name}_alive TO plain")
    yield name
    ask(f"DROP SCHEMA {name} CASCADE")
    ask("DROP ROLE plain")


@pytest.fixture
def plain(server: PostgresServer, table: str) -> str:
    """The URL with that role."""
    return f"{server.url.replace('postgres@', 'plain@')}?table={table}&schema={table}"


def do_everything(ours: Side) -> None:
    """Take each step of the store."""
    locks = ours.locks
    grant = ours.take("a")
    assert ours.do(grant.renew)
    assert ours.take("a", timeout=0) is None
    with ours.beside() as other:
        waiting = other.waits("a")
        eventually(lambda: len(ours.claims("a")) == 2)
        assert ours.do(grant.release) is True
        assert other.do(waiting.result(WAIT_LIMIT).release) is True
    permits = [ours.do(locks.semaphore("b", 3).acquire) for _ in range(3)]
    assert ours.do(locks.semaphore("b", 3).acquire, timeout=0.05) is None
    assert [ours.do(permit.release) for permit in permits] == [True] * 3
    reader = ours.do(locks.rwlock("c").read().acquire)
    assert ours.do(locks.rwlock("c").write().acquire, timeout=0.05) is None
    assert ours.do(locks.evict, "c") == 1
    assert not ours.do(reader.renew)
    assert ours.do(locks.claims) == []


def test_a_plain_role_can_do_everything(plain: str, table: str, ask: Ask, sync_or_async: str) -> None:
    with side(sync_or_async, plain) as ours:
        do_everything(ours)
        ask(f"TRUNCATE {table}.{table}_alive")  # as a crash does
        do_everything(ours)
        found = {check.name: check.status for check in ours.do(ours.locks.doctor)}
        assert found["table"] == "ok"
        assert "fail" not in found.values()
    with psycopg.connect(plain.partition("?")[0]) as connection:
        assert connection.execute(f"SELECT {table}.{table}_sweep(1000, 0)").fetchall()[0][0] > 0


@pytest.mark.parametrize(
    "right",
    [
        *(f"{right} ON {{0}}.{{0}} FROM plain" for right in TABLE),
        *(f"{right} ON {{0}}.{{0}}_alive FROM plain" for right in ALIVE),
        "USAGE ON SCHEMA {0} FROM plain",
        "EXECUTE ON ALL FUNCTIONS IN SCHEMA {0} FROM PUBLIC",
    ],
)
def test_one_right_less_is_an_error_that_says_which_are_needed(plain: str, table: str, ask: Ask, right: str) -> None:
    ask(f"TRUNCATE {table}.{table}_alive")
    ask(f"REVOKE {right.format(table)}")
    with side(THREADS, plain) as ours:
        with pytest.raises(StoreError, match=re.escape(ADVICE)):
            do_everything(ours)
        ask(f"GRANT DELETE ON {table}.{table} TO plain")  # for claims that `close` releases


def test_a_role_that_may_not_make_the_table_is_told_who_may(server: PostgresServer, table: str, ask: Ask) -> None:
    ask("REVOKE CREATE ON SCHEMA public FROM PUBLIC")  # as from PostgreSQL 15 on
    url = f"{server.url.replace('postgres@', 'plain@')}?table={table}"
    with (
        interlock.connect(url) as locks,
        pytest.raises(StoreError, match="let its owner run"),
    ):
        locks.lock("a").acquire(timeout=0)


@pytest.fixture
def nowhere(plain: str, ask: Ask) -> Iterator[str]:
    """The URL of that role, without a schema; its search path is empty."""
    ask("ALTER ROLE plain SET search_path = ''")
    yield plain.partition("&schema")[0]
    ask("ALTER ROLE plain RESET search_path")


def test_a_role_with_an_empty_search_path_can_do_everything(
    nowhere: str, server: PostgresServer, table: str, ask: Ask, sync_or_async: str
) -> None:
    ask(f"DROP TABLE {table}.{table}, {table}.{table}_alive")
    ask(f"SET search_path = {table}; " + ddl(table))  # as the owner makes it who is there
    ask("RESET search_path")
    ask(f"GRANT ALL ON ALL TABLES IN SCHEMA {table} TO plain")
    with side(sync_or_async, f"{nowhere}&schema={table}") as ours:
        do_everything(ours)


def test_an_empty_search_path_is_an_error_that_names_schema(nowhere: str) -> None:
    with interlock.connect(nowhere) as locks, pytest.raises(StoreError, match=r"\?schema="):
        locks.lock("a").acquire(timeout=0)
