"""A holder that was stopped and resumes writes nothing: the fence in the statement, on real databases."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    insert,
    select,
)
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import interlock
from interlock.sql import StaleFence, fence_column, fenced
from interlock.testing.waiting import eventually

METADATA = MetaData()
BOOKS = Table(
    "fenced_book", METADATA,
    Column("id", Integer, primary_key=True), Column("name", String(50)), fence_column(),
)  # fmt: skip


class Base(DeclarativeBase):
    metadata = METADATA


class Book(Base):
    __table__ = BOOKS


class Loose(Base):
    """A model whose column a migration added: without a default, and with another name."""

    __tablename__ = "loose_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50))
    narrow: Mapped[int] = mapped_column(Integer, default=0)


@pytest.fixture
def books(engine: Engine) -> Iterator[Table]:
    """Two books."""
    METADATA.drop_all(engine)
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(BOOKS), [{"id": 1, "name": "old"}, {"id": 2, "name": "old"}])
    yield BOOKS
    METADATA.drop_all(engine)


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[interlock.Locks]:
    """Locks between processes."""
    with interlock.connect(f"file://{tmp_path / 'locks'}") as locks:
        yield locks


def names(engine: Engine) -> list[str | None]:
    """The names in the table."""
    with engine.connect() as connection:
        return list(connection.execute(select(BOOKS.c.name).order_by(BOOKS.c.id)).scalars())


LATE = """
import sys
import interlock
from sqlalchemy import create_engine
from interlock.sql import StaleFence, fenced
from test_fenced import BOOKS
import interlock.client.base_grant
locks = interlock.connect(sys.argv[1])
grant = locks.lock("book", ttl=0.5).acquire()
engine = create_engine(sys.argv[2])
interlock.client.base_grant.BaseGrant.check = lambda self: None  # only the database is left to refuse
print("holds", grant.fence, flush=True)
sys.stdin.readline()
try:
    with engine.begin() as connection:
        fenced(BOOKS, grant).write(connection, BOOKS.c.id == 1, name="late")
    print("written")
except StaleFence as error:
    print("refused", error.fence)
with engine.begin() as connection:
    print(connection.execute(fenced(BOOKS, grant).update(BOOKS.c.id == 1).values(name="late")).rowcount)
"""


def test_the_late_write_of_a_paused_holder_is_refused(engine: Engine, books: Table, url: str, tmp_path: Path) -> None:
    place = f"file://{tmp_path / 'locks'}"
    late = subprocess.Popen(
        [sys.executable, "-c", LATE, place, url], cwd=Path(__file__).parent,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert late.stdout is not None
    word, _, first = late.stdout.readline().partition(" ")
    assert word == "holds"
    late.send_signal(signal.SIGSTOP)
    with interlock.connect(place) as locks, locks.lock("book", timeout=20) as grant:
        assert grant.fence > int(first)
        with engine.begin() as connection:
            assert fenced(books, grant).write(connection, books.c.id == 1, name="new") == 1
        late.send_signal(signal.SIGCONT)
        said, _ = late.communicate("go\n", timeout=30)
    assert said.split() == ["refused", str(grant.fence), "0"]
    assert names(engine) == ["new", "old"]


def test_the_holder_may_write_again_and_a_row_without_a_fence(engine: Engine, locks, books: Table) -> None:
    with locks.lock("book") as grant, engine.begin() as connection:
        guard = fenced(books, grant)
        assert [guard.write(connection, books.c.id == 1, name=name) for name in ("a", "b", "b")] == [1, 1, 1]
        assert guard.write(connection, books.c.id == 7, name="none") == 0
    assert names(engine) == ["b", "old"]


def test_several_rows_are_written_or_none(engine: Engine, locks, books: Table) -> None:
    early = locks.lock("book").acquire()
    fence = early.fence
    with engine.begin() as connection:
        connection.execute(books.update().where(books.c.id == 2).values(fence=fence + 5))
    with engine.begin() as connection:
        connection.execute(books.update().where(books.c.id == 2).values(name="kept"))
        with pytest.raises(StaleFence, match="Stop the work") as error:
            fenced(books, early).write(connection, books.c.id.in_([1, 2]), name="late")
    assert error.value.fence == fence + 5
    assert names(engine) == ["old", "kept"]  # the caller decides about the rest of the transaction


def test_the_flush_of_an_object_is_guarded(engine: Engine, locks, books: Table) -> None:
    grant = locks.lock("book").acquire()
    with Session(engine) as session:
        book = session.get_one(Book, 1)
        fenced(Book, grant).write(session, Book.id == 1)
        book.name = "flushed"
        session.commit()
    later = books.update().where(books.c.id == 1).values(fence=grant.fence + 1)
    with engine.begin() as connection:
        connection.execute(later)
    with Session(engine) as session, pytest.raises(StaleFence):
        book = session.get_one(Book, 1)
        session.rollback()
        fenced(Book, grant).write(session, Book.id == 1)
        book.name = "late"
        session.commit()
    assert names(engine) == ["flushed", "old"]


def test_a_delete_heeds_the_fence(engine: Engine, locks, books: Table) -> None:
    grant = locks.lock("book").acquire()
    with engine.begin() as connection:
        connection.execute(books.update().where(books.c.id == 2).values(fence=grant.fence + 1))
        gone = [connection.execute(fenced(books, grant).delete(books.c.id == id)).rowcount for id in (1, 2)]
    assert gone == [1, 0]


def test_a_lost_lock_is_refused_before_the_database_is_asked(engine: Engine, locks, books: Table) -> None:
    grant = locks.lock("book").acquire()
    locks.evict("book")
    assert not grant.renew()
    with engine.begin() as connection, pytest.raises(interlock.LockLost):
        fenced(books, grant).write(connection, books.c.id == 1, name="late")
    assert names(engine) == ["old", "old"]


def test_what_can_not_be_fenced_is_refused(engine: Engine, locks, books: Table) -> None:
    grant = locks.lock("book").acquire()
    for target, column in ((BOOKS, "name"), (BOOKS, "other"), (Loose, "narrow"), (BOOKS, "id")):
        with pytest.raises(interlock.InvalidArgument, match="fence"):
            fenced(target, grant, column)
    for target in ("books", None, Base):
        with pytest.raises(interlock.InvalidArgument):
            fenced(target, grant)
    with pytest.raises(interlock.InvalidArgument, match="grant"):
        fenced(BOOKS, 7)
    with engine.connect() as connection:
        with pytest.raises(interlock.InvalidArgument, match="The condition is missing"):
            fenced(BOOKS, grant).write(connection, name="all")
        with pytest.raises(interlock.InvalidArgument, match="itself"):
            fenced(BOOKS, grant).write(connection, BOOKS.c.id == 1, fence=3)


@pytest.mark.parametrize("session", [False, True], ids=["connection", "session"])
@pytest.mark.parametrize("key", [0, 1], ids=["several rows", "one row"])
def test_autocommit_is_refused_and_nothing_is_written(
    engine: Engine, locks, books: Table, session: bool, key: int
) -> None:
    grant = locks.lock("book").acquire()
    with engine.begin() as connection:
        connection.execute(books.update().where(books.c.id == 2).values(fence=grant.fence + 5))
    always = engine.execution_options(isolation_level="AUTOCOMMIT")
    with (sessionmaker(always) if session else always.connect)() as connection:
        with pytest.raises(interlock.InvalidArgument, match=r"autocommit.*execution_options"):
            fenced(books, grant).write(connection, books.c.id == key if key else books.c.id > 0, name="late")
    assert names(engine) == ["old", "old"]


def test_a_program_that_sends_begin_itself_is_not_in_autocommit(tmp_path: Path, locks) -> None:
    """SQLAlchemy's page on SQLite advises that, so that savepoints work."""
    engine = create_engine(f"sqlite:///{tmp_path / 'begin.db'}")
    event.listen(engine, "connect", lambda plain, _: setattr(plain, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    METADATA.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(BOOKS), [{"id": 1, "name": "old"}])
    with engine.connect() as connection:
        assert fenced(BOOKS, locks.lock("book").acquire()).write(connection, BOOKS.c.id == 1, name="new") == 1
        connection.commit()
    assert names(engine) == ["new"]
    engine.dispose()


def test_asyncio_writes_with_the_fence(tmp_path: Path) -> None:
    file = tmp_path / "tasks.db"
    METADATA.create_all(create_engine(f"sqlite:///{file}"))

    async def story() -> list[object]:
        engine = create_async_engine(f"sqlite+aiosqlite:///{file}")
        async with interlock.aconnect(f"file://{tmp_path / 'locks'}") as locks:
            async with locks.lock("book") as grant, engine.begin() as connection:
                await connection.execute(insert(BOOKS), [{"id": 1, "name": "old"}])
                count = await fenced(BOOKS, grant).awrite(connection, BOOKS.c.id == 1, name="new")
                await connection.execute(BOOKS.update().values(fence=grant.fence + 1))
                try:
                    await fenced(BOOKS, grant).awrite(connection, BOOKS.c.id == 1, name="late")
                except StaleFence:
                    pass
                row = (await connection.execute(select(BOOKS.c.name))).scalar()
        await engine.dispose()
        return [count, row]

    assert asyncio.run(story()) == [1, "new"]


def test_the_one_who_waits_for_the_row_sees_the_later_fence(engine: Engine, locks, books: Table, url: str) -> None:
    import threading

    grant = locks.lock("book").acquire()
    found: list[BaseException] = []

    def late() -> None:
        try:
            with engine.begin() as connection:
                fenced(books, grant).write(connection, books.c.id == 1, name="late")
        except StaleFence as error:
            found.append(error)

    with engine.begin() as connection:
        connection.execute(books.update().where(books.c.id == 1).values(fence=grant.fence + 1, name="new"))
        thread = threading.Thread(target=late)
        thread.start()
        asked = "pg_stat_activity where wait_event_type = 'Lock'"
        if "mysql" in url:
            # Not innodb_trx: its cache is not refreshed for a client that reads it more than ten times a second.
            asked = "information_schema.processlist where left(info, 6) = 'UPDATE'"
        with engine.connect() as eye:
            if url.startswith("sqlite"):  # it waits for the file, and nothing shows it
                asked = "(select 1)"
            eye = eye.execution_options(isolation_level="AUTOCOMMIT")
            eventually(lambda: eye.exec_driver_sql(f"select count(*) from {asked}").scalar())
    thread.join(20)
    assert len(found) == 1
    assert names(engine) == ["new", "old"]
