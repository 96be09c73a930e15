"""`interlock.sql.once`: a record in the caller's own transaction."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy

import interlock
from interlock.sql import ONCE, once


@pytest.fixture(autouse=True)
def without_table(engine: Any) -> None:
    """The first call creates the table."""
    ONCE.drop(engine, checkfirst=True)


def test_the_record_commits_with_the_callers_transaction(engine: Any) -> None:
    with pytest.raises(ZeroDivisionError), engine.begin() as connection:
        assert once(connection, "import") is True
        raise ZeroDivisionError
    with engine.begin() as connection:
        assert once(connection, "import") is True
        assert once(connection, "import") is False
    with engine.begin() as connection:
        assert once(connection, "import") is False
        assert once(connection, "another") is True
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.select(sqlalchemy.func.count()).select_from(ONCE)).scalar() == 2


def test_who_comes_meanwhile_waits_for_the_end(engine: Any) -> None:
    with engine.begin() as connection:
        once(connection, "the table is there now")
    answers: list[bool] = []

    def other() -> None:
        with engine.begin() as connection:
            answers.append(once(connection, "import"))

    thread = threading.Thread(target=other)
    with engine.begin() as connection:
        assert once(connection, "import") is True
        thread.start()
        thread.join(0.3)
        assert answers == []
    thread.join(20)
    assert answers == [False]


def test_what_commits_by_itself_is_refused(engine: Any) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        with pytest.raises(interlock.InvalidArgument, match="autocommit"):
            once(connection, "import")
    with engine.begin() as connection, pytest.raises(interlock.InvalidArgument):
        once(connection, "")


SCHEMAS = ("shelf_one", "shelf_two")


@pytest.mark.parametrize("url", ["postgres", "mariadb"], indirect=True)
def test_each_schema_of_a_translate_map_has_its_own_records(engine: Any) -> None:
    with engine.begin() as connection:
        for schema in SCHEMAS:
            connection.execute(sqlalchemy.schema.CreateSchema(schema))
    try:
        for schema, due in [(SCHEMAS[0], True), (SCHEMAS[1], True), (None, True), (SCHEMAS[0], False)]:
            with engine.connect().execution_options(schema_translate_map={None: schema}) as tenant, tenant.begin():
                assert once(tenant, "import") is due
    finally:
        with engine.begin() as connection:
            for schema in SCHEMAS:
                connection.execute(sqlalchemy.schema.DropSchema(schema, cascade=engine.name == "postgresql"))


@pytest.fixture
def plain(engine: Any) -> Iterator[Any]:
    """An engine of a role of PostgreSQL without rights."""
    with engine.begin() as connection:
        for words in ("CREATE ROLE plain LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC"):
            connection.execute(sqlalchemy.text(words))
    other = sqlalchemy.create_engine(engine.url.set(username="plain"))
    yield other
    other.dispose()
    with engine.begin() as connection:
        ONCE.drop(connection, checkfirst=True)
        connection.execute(sqlalchemy.text("DROP ROLE plain"))


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_role_without_rights_is_told_what_to_do(engine: Any, plain: Any) -> None:
    with plain.begin() as connection, pytest.raises(interlock.StoreError, match="CREATE TABLE interlock_once"):
        once(connection, "import")
    ONCE.create(engine)
    with plain.begin() as connection, pytest.raises(interlock.StoreError, match="GRANT INSERT ON interlock_once"):
        once(connection, "import")
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("GRANT INSERT ON interlock_once TO plain"))
    with plain.begin() as connection:
        assert once(connection, "import") is True


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_without_a_search_path_the_schema_is_named(engine: Any, plain: Any) -> None:
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("ALTER ROLE plain SET search_path = ''"))
        connection.execute(sqlalchemy.text("CREATE SCHEMA app AUTHORIZATION plain"))
    with plain.begin() as connection, pytest.raises(interlock.StoreError, match="schema_translate_map"):
        once(connection, "import")
    with plain.connect().execution_options(schema_translate_map={None: "app"}) as connection, connection.begin():
        assert once(connection, "import") is True
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("DROP SCHEMA app CASCADE"))


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_a_deadlock_reaches_the_program_as_it_is(engine: Any) -> None:
    with engine.begin() as connection:
        once(connection, "the table is there now")
    names, held = ("a", "b"), threading.Barrier(2)
    found: list[BaseException] = []

    def both(first: str, second: str) -> None:
        try:
            with engine.begin() as connection:
                once(connection, first)
                held.wait(20)
                once(connection, second)
        except sqlalchemy.exc.DBAPIError as error:
            found.append(error)

    threads = [threading.Thread(target=both, args=each) for each in (names, names[::-1])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [type(error) for error in found] == [sqlalchemy.exc.OperationalError]
