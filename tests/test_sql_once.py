"""`interlock.sql.once`: a record in the caller's own transaction."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

sqlalchemy = pytest.importorskip("sqlalchemy")

import interlock  # noqa: E402
from interlock.sql import ONCE, once  # noqa: E402
from tests.servers import MariaServer, PostgresServer, need  # noqa: E402


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """An engine of an empty database."""
    if request.param == "sqlite":
        yield sqlalchemy.create_engine(f"sqlite:///{tmp_path}/app.db")
        return
    need(request.param)
    with closing(PostgresServer() if request.param == "postgres" else MariaServer()) as server:
        rest = server.url.partition("://")[2]
        driver = "postgresql+psycopg" if request.param == "postgres" else "mysql+pymysql"
        made = sqlalchemy.create_engine(f"{driver}://{rest}")
        yield made
        made.dispose()


def test_it_is_recorded_with_the_callers_transaction_or_not_at_all(engine: Any) -> None:
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
