"""`interlock.sql.once`: a record in the caller's own transaction."""

import threading
from typing import Any

import pytest
import sqlalchemy

import interlock
from interlock.sql import ONCE, once


@pytest.fixture(autouse=True)
def without_table(engine: Any) -> None:
    """The first call creates the table."""
    ONCE.drop(engine, checkfirst=True)


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
