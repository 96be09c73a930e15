"""`transact` on sessions of SQLAlchemy: the rows that were read are unchanged at the commit, or it tries again."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import JSON, Engine, Float, String, create_engine, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from interlock import InvalidArgument
from interlock.optimistic import Conflict, transact


class Base(DeclarativeBase):
    pass


class Plain(Base):
    """A model without a version: all values are compared."""

    __tablename__ = "plain_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    copies: Mapped[int]
    name: Mapped[str] = mapped_column(String(50), default="a")
    rate: Mapped[float] = mapped_column(Float, default=0.1)
    tags: Mapped[Any] = mapped_column(JSON, default=list)


class Versioned(Base):
    """A model with a version that SQLAlchemy increments."""

    __tablename__ = "versioned_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    copies: Mapped[int]
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}


@pytest.fixture(params=[Plain, Versioned], ids=lambda book: book.__name__)
def book(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Any]:
    """A class with two books in its table."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([request.param(id=1, copies=5), request.param(id=2, copies=5)])
        session.commit()
    yield request.param
    Base.metadata.drop_all(engine)


def copies(engine: Engine, book: Any, id: int = 1) -> int:
    """How many there are."""
    with Session(engine) as session:
        return session.get_one(book, id).copies


def buys(engine: Engine, book: Any, id: int = 1) -> None:
    """Change a row as another client, by the ORM."""
    with Session(engine) as session:
        session.get_one(book, id).copies += 10
        session.commit()


def test_a_change_between_reading_and_writing_is_seen(engine: Engine, book: Any) -> None:
    runs = []

    def borrow(session: Session) -> int:
        mine = session.get_one(book, 1)
        runs.append(mine.copies)
        left = mine.copies - 1
        if len(runs) == 1:
            session.rollback() if engine.dialect.name == "sqlite" else None  # its readers stop its writers
            buys(engine, book)
            mine = session.get_one(book, 1) if engine.dialect.name == "sqlite" else mine
        mine.copies = left
        return left

    assert transact(engine, borrow) == 14
    assert runs == [5, 15]
    assert copies(engine, book) == 14


def test_a_crowd_loses_no_update(engine: Engine, book: Any) -> None:
    def borrow(session: Session) -> None:
        session.get_one(book, 1).copies += 1

    def work(_: int) -> None:
        for _ in range(5):
            transact(engine, borrow, retries=None, timeout=60)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))
    assert copies(engine, book) == 25


def test_what_was_only_read_is_compared_too(engine: Engine, book: Any) -> None:
    runs = []

    def copy(session: Session) -> None:
        other = session.get_one(book, 2).copies
        session.rollback() if engine.dialect.name == "sqlite" else None
        runs.append(other)
        if len(runs) == 1:
            buys(engine, book, 2)
        session.get_one(book, 1).copies = other

    transact(engine, copy)
    assert runs == [5, 15]
    assert copies(engine, book) == 15


def test_no_more_tries_end_in_a_conflict_and_nothing_is_done(engine: Engine, book: Any) -> None:
    def borrow(session: Session) -> None:
        mine = session.get_one(book, 1)
        session.rollback() if engine.dialect.name == "sqlite" else None
        buys(engine, book)
        session.get_one(book, 1).copies = 0
        del mine

    with pytest.raises(Conflict, match=f"{book.__name__} \\(1,\\)") as error:
        transact(engine, borrow, retries=2, backoff=0)
    assert error.value.tries == 3
    assert copies(engine, book) == 35


def test_a_row_that_was_removed_is_a_change(engine: Engine, book: Any) -> None:
    def borrow(session: Session) -> str:
        mine = session.get(book, 1)
        session.rollback() if engine.dialect.name == "sqlite" else None
        if mine is None:
            return "none"
        with Session(engine) as other:
            other.delete(other.get_one(book, 1))
            other.commit()
        session.add(mine)
        mine.copies = 0
        return "borrowed"

    assert transact(engine, borrow) == "none"


def test_an_error_of_the_function_commits_nothing(engine: Engine, book: Any) -> None:
    def fails(session: Session) -> None:
        session.get_one(book, 1).copies = 0
        session.flush()
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        transact(sessionmaker(engine), fails)
    assert copies(engine, book) == 5


def test_a_value_that_changed_in_its_case_only_is_a_change(engine: Engine, book: Any) -> None:
    if book is not Plain:
        return
    runs = []

    def rename(session: Session) -> None:
        mine = session.get_one(Plain, 1)
        runs.append(mine.name)
        session.rollback()
        if len(runs) == 1:
            with engine.begin() as other:
                other.execute(update(Plain).where(Plain.id == 1).values(name="A"))
        mine = session.get_one(Plain, 1)
        mine.copies = 1

    transact(engine, rename)
    assert runs == ["a", "A"]


def test_keys_and_other_things_are_refused() -> None:
    plain = create_engine("sqlite://")
    with pytest.raises(InvalidArgument, match="Keys are not accepted"):
        transact(plain, lambda session: None, "book")
    with Session(plain) as session, pytest.raises(InvalidArgument, match="sessionmaker"):
        transact(session, lambda session: None)
