# needs: postgres
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import interlock
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, insert, select, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

if TYPE_CHECKING:  # names that the page or the test runner defines
    from typing import Any

    Book: Any
    app: FastAPI
    book: Any
    books: Table
    left: int
    session: Session

url = os.environ["INTERLOCK_DOCS_POSTGRES"]
engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
metadata = MetaData()
locks = interlock.connect("memory://")
ADDRESSES = {
    "postgresql+psycopg://app@db.example/app": url.replace("postgresql:", "postgresql+psycopg:"),
    "postgresql+advisory://app@db.example/app": url.replace("postgresql:", "postgresql+advisory:"),
    "books = Table(": "books = made(",
    "fenced(Book, grant)": 'fenced(Book, locks.lock("book:7").acquire())',
}


class Base(DeclarativeBase):
    metadata = metadata


def made(*parts: "Any") -> Table:
    """Make the table of the page, with the columns that its later examples take for granted, and one row."""
    global Book, book, session
    table = Table(*parts, Column("copies", Integer))
    metadata.create_all(engine)
    Book = type("Book", (Base,), {"__table__": table})
    with engine.begin() as connection:
        connection.execute(insert(table).values(id=7, name="Ema", copies=2))
    session = Session(engine)
    book = session.get_one(Book, 7)
    session.rollback()
    return table


def check() -> None:
    assert left == 1
    with TestClient(app) as client:
        client.post("/books/7/name?name=Emmy").raise_for_status()
    with engine.connect() as connection:
        assert connection.execute(select(books.c.name)).scalar() == "Emmy"
