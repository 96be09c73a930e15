"""`transact` tries again after a deadlock error, also inside a savepoint."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, insert, select, update
from sqlalchemy.orm import Session

from interlock.optimistic import transact

PAIR = Table("deadlock_pair", MetaData(), Column("id", Integer, primary_key=True), Column("count", Integer))


@pytest.mark.parametrize("url", ["postgres", "mariadb"], indirect=True)  # SQLite has one writer at a time
@pytest.mark.parametrize("savepoint", [False, True], ids=["plain", "in a savepoint"])
def test_two_that_cross_both_come_to_their_end(engine: Engine, savepoint: bool) -> None:
    PAIR.metadata.drop_all(engine)
    PAIR.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(PAIR), [{"id": 1, "count": 0}, {"id": 2, "count": 0}])
    crossing = threading.Barrier(2)
    tries: list[int] = []

    def cross(first: int, second: int) -> None:
        mine: list[int] = []

        def count_both(session: Session) -> None:
            mine.append(1)
            tries.append(1)
            if savepoint:
                with session.begin_nested():
                    write(session)
            else:
                write(session)

        def write(session: Session) -> None:
            session.execute(update(PAIR).where(PAIR.c.id == first).values(count=PAIR.c.count + 1))
            if len(mine) == 1:
                crossing.wait(20)  # both have their first row
            session.execute(update(PAIR).where(PAIR.c.id == second).values(count=PAIR.c.count + 1))

        transact(engine, count_both)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(cross, 1, 2), pool.submit(cross, 2, 1)]:
            done.result(60)
    with engine.connect() as connection:
        assert connection.execute(select(PAIR.c.count).order_by(PAIR.c.id)).scalars().all() == [2, 2]
    assert len(tries) > 2, "nobody was in anybody's way"
