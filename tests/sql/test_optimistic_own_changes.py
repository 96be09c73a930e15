"""`transact` on sessions of SQLAlchemy finds the changes of others, and ignores its own; both colours."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Double,
    Engine,
    ForeignKey,
    String,
    func,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    mapped_column,
    query_expression,
    relationship,
    sessionmaker,
    with_expression,
)

import interlock
from interlock.optimistic import Conflict, atransact, transact
from interlock.sql import fenced

ASYNC = {"sqlite": "sqlite+aiosqlite", "postgresql+psycopg": "postgresql+psycopg", "mysql+pymysql": "mysql+aiomysql"}
NAN = float("nan")


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "own_author"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), default="a")
    books: Mapped[list["Book"]] = relationship(passive_deletes=True)
    loans: Mapped[list["Loan"]] = relationship()


class Book(Base):
    """A model with the deferred column `copies`."""

    __tablename__ = "own_book"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(20), default="a")
    copies: Mapped[int] = mapped_column(deferred=True, default=1)
    weight: Mapped[float] = mapped_column(Double, default=1.0)
    author_id: Mapped[int | None] = mapped_column(ForeignKey("own_author.id", ondelete="CASCADE"))
    fence: Mapped[int] = mapped_column(BigInteger, default=0)
    extra: Mapped[int] = query_expression()


class Loan(Base):
    """A versioned model; the flush sets its author to NULL when the author is deleted."""

    __tablename__ = "own_loan"
    id: Mapped[int] = mapped_column(primary_key=True)
    days: Mapped[int] = mapped_column(default=1)
    state: Mapped[str] = mapped_column(String(20), server_default="new")
    author_id: Mapped[int | None] = mapped_column(ForeignKey("own_author.id"))
    version: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": version}


class Person(Base):
    __tablename__ = "own_person"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    pay: Mapped[int] = mapped_column(default=1)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}


class Manager(Person):
    __tablename__ = "own_manager"
    id: Mapped[int] = mapped_column(ForeignKey("own_person.id"), primary_key=True)
    bonus: Mapped[int] = mapped_column(default=1)
    __mapper_args__ = {"polymorphic_identity": "manager"}


class Shape(Base):
    __tablename__ = "own_shape"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))
    size: Mapped[int] = mapped_column(default=1)
    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "shape", "with_polymorphic": "*"}


class Circle(Shape):
    __tablename__ = "own_circle"
    id: Mapped[int] = mapped_column(ForeignKey("own_shape.id"), primary_key=True)
    radius: Mapped[int] = mapped_column(default=1)
    __mapper_args__ = {"polymorphic_identity": "circle"}


@pytest.fixture(autouse=True)
def rows(engine: Engine) -> Iterator[None]:
    """An author with two books and a loan, and others."""
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Author(id=1, books=[Book(id=1), Book(id=2)], loans=[Loan(id=1)]))
        session.add_all([Manager(id=1), Shape(id=1), Circle(id=2)])
        session.commit()
    yield
    Base.metadata.drop_all(engine)


Run = Callable[..., Any]


@pytest.fixture(params=["threads", "tasks"])
def run(request: pytest.FixtureRequest, engine: Engine, url: str) -> Run:
    """Run a function that takes a Session by transact, or by atransact."""
    if request.param == "threads":
        return lambda function, retries=2, **options: transact(
            sessionmaker(engine.execution_options(**options)), function, retries=retries, backoff=0
        )

    async def story(function: Callable[[Session], Any], retries: int, options: dict[str, Any]) -> Any:
        scheme, _, rest = url.partition(":")
        tasks = create_async_engine(f"{ASYNC[scheme]}:{rest}")
        make = async_sessionmaker(tasks.execution_options(**options))
        try:
            return await atransact(make, lambda session: session.run_sync(function), retries=retries, backoff=0)
        finally:
            await tasks.dispose()

    return lambda function, retries=2, **options: asyncio.run(story(function, retries, options))


def others(engine: Engine, sql: str) -> None:
    """Write as another client; it fails, and does not hang, if a row is locked."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SET LOCAL lock_timeout = '5s'"))
        connection.execute(text(sql))


def value(engine: Engine, sql: str) -> Any:
    """One value of the database."""
    with engine.connect() as connection:
        return connection.execute(text(sql)).scalar()


def test_a_column_that_is_loaded_later_is_compared(engine: Engine, run: Run) -> None:
    seen = []

    def borrow(session: Session) -> None:
        book = session.get_one(Book, 1)
        seen.append(book.copies)
        if len(seen) == 1:
            others(engine, "update own_book set copies = copies + 10 where id = 1")
        book.name = "borrowed"
        book.copies = seen[-1] - 1

    run(borrow)
    assert seen == [1, 11]
    assert value(engine, "select copies from own_book where id = 1") == 10


def test_what_a_flush_loads_is_compared(engine: Engine, run: Run) -> None:
    """On MariaDB a flush may load the row's value from the begin of the transaction, though the row is locked."""
    runs = []

    def rise(session: Session) -> None:
        person: Any = session.scalars(select(Person)).one()
        session.expire(person)
        runs.append(None)
        if len(runs) == 1:
            others(engine, "update own_manager set bonus = 100")
        person.pay = 2
        session.flush()
        person.bonus += 1

    run(rise)
    assert value(engine, "select bonus from own_manager") == 101


def test_a_row_that_a_savepoint_gave_back_is_compared_again(engine: Engine, run: Run) -> None:
    seen = []

    def borrow(session: Session) -> None:
        book = session.get_one(Book, 1)
        seen.append(book.copies)
        try:
            with session.begin_nested():
                book.copies -= 1
                session.flush()
                raise KeyError
        except KeyError:
            pass
        # The others keep the row locked.
        if len(seen) == 1 and engine.dialect.name == "postgresql":
            others(engine, "update own_book set copies = copies + 10 where id = 1")
        book.copies = seen[-1] - 1

    run(borrow)
    assert seen == ([1, 11] if engine.dialect.name == "postgresql" else [1])
    assert value(engine, "select copies from own_book where id = 1") == seen[-1] - 1


def test_a_savepoint_that_was_kept_is_part_of_the_transaction(engine: Engine, run: Run) -> None:
    def borrow(session: Session, fail: bool = False) -> None:
        book = session.get_one(Book, 1)
        with session.begin_nested():
            with session.begin_nested():
                book.copies -= 1
            book.weight = 2.0
        session.refresh(book)
        book.name = f"{book.copies} left"
        if fail:
            raise KeyError

    with pytest.raises(KeyError):
        run(lambda session: borrow(session, fail=True))
    assert value(engine, "select copies from own_book where id = 1") == 1
    run(borrow, retries=0)
    assert value(engine, "select name from own_book where id = 1") == "0 left"


def test_a_conflict_that_the_function_swallows_is_one(engine: Engine, run: Run) -> None:
    seen = []

    def borrow(session: Session) -> None:
        book = session.get_one(Book, 1)
        seen.append(book.weight)
        if len(seen) == 1:
            others(engine, "update own_book set weight = 7 where id = 1")
        book.weight = seen[-1] + 1
        try:
            session.flush()
        except Exception:
            session.rollback()

    run(borrow)
    assert seen == [1.0, 7.0]
    assert value(engine, "select weight from own_book where id = 1") == 8.0


def test_autocommit_is_refused_before_anything_is_written(engine: Engine, run: Run) -> None:
    def fails(session: Session) -> None:
        session.get_one(Book, 1).name = "written"
        session.flush()
        raise KeyError

    with pytest.raises(interlock.InvalidArgument, match=r"autocommit.*execution_options"):
        run(fails, isolation_level="AUTOCOMMIT")
    assert value(engine, "select name from own_book where id = 1") == "a"


def by_a_statement(session: Session) -> None:
    book = session.get_one(Book, 1)
    assert book.copies
    session.execute(update(Book).where(Book.id == 1).values(copies=Book.copies - 1))
    session.execute(update(Book).where(Book.id == 1).values(name=f"{book.copies}"))


def by_text(session: Session) -> None:
    assert session.get_one(Book, 1).weight
    session.execute(text("update own_book set weight = 0 where id = 1"))


def by_a_fence(session: Session) -> None:
    book = session.get_one(Book, 1)
    with interlock.connect("memory://") as locks, locks.lock("book") as grant:
        fenced(Book, grant).write(session, Book.id == 1)
        book.copies = 0
        session.flush()


def by_a_collection(session: Session) -> None:
    author = session.get_one(Author, 1)
    author.books.pop()
    assert session.scalar(select(func.count(Book.id)).where(Book.author_id == 1)) == 1


def by_a_cascade(session: Session) -> None:
    for loan in session.get_one(Author, 1).loans:
        session.delete(loan)
    author = session.get_one(Author, 1)
    assert len(author.books) == 2
    session.delete(author)
    assert session.scalar(select(func.count(Author.id))) == 0


def by_a_flush_that_loads(session: Session) -> None:
    session.delete(session.get_one(Author, 1))
    assert session.scalar(select(func.count(Loan.id)).where(Loan.author_id.is_(None))) == 1
    loan = session.get_one(Loan, 1)
    session.expire(loan)
    loan.days = 9  # the flush loads the version, and writes the next
    assert session.scalar(select(Loan.days)) == 9
    session.add(Loan(id=2))


def by_an_expression(session: Session) -> None:
    made = select(Book).where(Book.id == 1).options(with_expression(Book.extra, Book.id + 7))
    book = session.scalars(made).one()
    assert book.extra == 8
    book.name = "b"


def by_all_subclasses(session: Session) -> None:
    for shape in session.scalars(select(Shape).order_by(Shape.id)):
        shape.size += 1
    session.get_one(Circle, 2).radius += 1


OWN = [
    by_a_statement, by_text, by_a_fence, by_a_collection, by_a_cascade, by_a_flush_that_loads, by_an_expression,
    by_all_subclasses,
]  # fmt: skip


@pytest.mark.parametrize("function", OWN)
def test_own_changes_are_no_conflict(engine: Engine, run: Run, function: Callable[[Session], None]) -> None:
    run(function, retries=0)


def test_a_statement_does_not_hide_what_others_changed(engine: Engine, run: Run) -> None:
    """The statement writes the old value again, so that afterwards the row seems unchanged."""

    def keep(session: Session) -> None:
        weight = session.get_one(Book, 1).weight
        others(engine, "update own_book set weight = weight + 1 where id = 1")
        session.execute(update(Book).where(Book.id == 1).values(weight=weight))

    with pytest.raises(Conflict):
        run(keep, retries=1)
    assert value(engine, "select weight from own_book where id = 1") == 3.0


def test_a_session_with_an_engine_for_each_class(engine: Engine) -> None:
    def borrow(session: Session) -> None:
        by_a_fence(session)
        session.get_one(Loan, 1).days = 2

    transact(sessionmaker(binds={Book: engine, Loan: engine}), borrow, retries=0)
    assert value(engine, "select copies from own_book where id = 1") == 0
