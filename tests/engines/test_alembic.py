"""Migrations create and drop the table of locks, like the program's own tables."""

import io
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pymysql
import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

import interlock
import interlock.alembic
from interlock.core.errors import InvalidArgument, StoreError
from interlock.sql import ONCE, once
from tests.engines.conftest import played
from tests.servers import MariaServer, PostgresServer

LEFT = "SELECT count(*) FROM pg_proc WHERE proname LIKE %s", "SELECT count(*) FROM pg_class WHERE relname LIKE %s"


def migrate(connection: Any, work: Callable[[Any], object], **how: Any) -> None:
    """Run a migration's work on a connection of SQLAlchemy."""
    context = MigrationContext.configure(connection, opts=how)
    with Operations.context(context) as operations, context.begin_transaction():
        work(operations)


def test_a_postgresql_migration_is_undone_by_its_reverse(
    server: PostgresServer, ask: Callable[..., list[Any]]
) -> None:
    table = f"t{uuid4().hex}"
    engine = create_engine(server.url.replace("postgresql:", "postgresql+psycopg:"))
    ask(f"CREATE SCHEMA {table}")
    with engine.begin() as connection:
        migrate(connection, lambda op: op.create_interlock(table, schema=table))
        migrate(connection, lambda op: op.create_interlock(table, schema=table))  # safe to repeat
    with interlock.connect(engine.execution_options(interlock_table=table, interlock_schema=table)) as locks:
        with locks.lock("a") as grant:
            assert [view.id for view in locks.claims("a")] == [grant.id]
    with engine.begin() as connection:
        migrate(connection, lambda op: op.drop_interlock(table, schema=table))
    engine.dispose()
    assert [ask(words, f"{table}%") for words in LEFT] == [[(0,)], [(0,)]]


def test_a_migration_by_asyncpg_takes_one_statement_at_a_time(server: PostgresServer) -> None:
    table = f"t{uuid4().hex}"

    async def play() -> None:
        engine = create_async_engine(server.url.replace("postgresql:", "postgresql+asyncpg:"))
        async with engine.begin() as connection:
            await connection.run_sync(migrate, lambda op: op.create_interlock(table))
        async with interlock.aconnect(f"{server.url}?table={table}&create=false") as locks, locks.lock("a"):
            pass
        async with engine.begin() as connection:
            await connection.run_sync(migrate, lambda op: op.drop_interlock(table))
        await engine.dispose()

    played(play)
    with interlock.connect(f"{server.url}?table={table}&create=false") as locks:
        with pytest.raises(StoreError, match="the table of locks and its functions are missing"):
            locks.lock("a").acquire()


def test_on_mariadb_too(mariadb: MariaServer) -> None:
    table = f"t{uuid4().hex}"
    engine = create_engine(mariadb.url.replace("mysql:", "mysql+pymysql:"))
    with engine.begin() as connection:
        migrate(connection, lambda op: op.create_interlock(table))
    with interlock.connect(engine.execution_options(interlock_table=table)) as locks, locks.lock("a"):
        pass
    with engine.begin() as connection:
        migrate(connection, lambda op: op.drop_interlock(table))
        with pytest.raises(InvalidArgument, match="Omit schema"):
            migrate(connection, lambda op: op.create_interlock(table, schema="app"))
    engine.dispose()
    url = f"{mariadb.url}?table={table}&create=false"
    with interlock.connect(url) as locks, pytest.raises(StoreError, match="The table of locks is missing"):
        locks.lock("a").acquire()


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_what_is_printed_offline_makes_the_table(dialect: str, server: PostgresServer, mariadb: MariaServer) -> None:
    table, printed = f"t{uuid4().hex}", io.StringIO()
    context = MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True, "output_buffer": printed})
    with Operations.context(context) as operations:
        operations.create_interlock(table)  # type: ignore[attr-defined]
    if dialect == "postgresql":
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(printed.getvalue().encode())
        url = server.url
    else:
        with pymysql.connect(
            host=mariadb.host, port=mariadb.port, user=mariadb.user, database=mariadb.database
        ) as db:
            db.cursor().execute(printed.getvalue())
        url = mariadb.url
    with interlock.connect(f"{url}?table={table}") as locks, locks.lock("a"):
        pass


def test_sqlite_is_refused_as_its_locks_have_their_own_file() -> None:
    engine = create_engine("sqlite://")
    with engine.begin() as connection, pytest.raises(InvalidArgument, match="have their own file"):
        migrate(connection, lambda op: op.create_interlock())
    engine.dispose()


def generated(url: str, **how: Any) -> list[str]:
    """Return the kinds of the operations that autogenerate finds for a program with one table."""
    metadata = MetaData()
    Table("book", metadata, Column("id", Integer, primary_key=True))
    engine = create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"target_metadata": metadata, **how})
        found = produce_migrations(context, metadata).upgrade_ops
    engine.dispose()
    assert found is not None
    return [type(each).__name__ for each in found.ops]


@pytest.mark.parametrize("how", [{}, {"include_object": interlock.alembic.include_object}], ids=["import", "filter"])
@pytest.mark.parametrize("table", ["interlock_line", "locks"])
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_generated_revision_keeps_our_tables_and_drops_others(
    server: PostgresServer, mariadb: MariaServer, how: dict[str, Any], table: str, kind: str
) -> None:
    url = server.url.replace("postgresql:", "postgresql+psycopg:")
    url = url if kind == "postgresql" else mariadb.url.replace("mysql:", "mysql+pymysql:")
    engine = create_engine(url)
    metadata = MetaData()
    Table("old", metadata, Column("id", Integer, primary_key=True), Column("name", String(20), index=True))
    with engine.begin() as connection:
        once(connection, "import")
        migrate(connection, lambda op: op.create_interlock(table))
        metadata.create_all(connection)
    try:
        assert sorted(generated(url, **how)) == ["CreateTableOp", "DropTableOp", "ModifyTableOps"]  # of book and old
    finally:
        with engine.begin() as connection:
            migrate(connection, lambda op: op.drop_interlock(table))
            ONCE.drop(connection)
            metadata.drop_all(connection)
        engine.dispose()
