"""Locks in SQL databases, ours, the peers' and the databases' own, each opened at a place.

The peers keep their default settings, except that they wait without limit.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bench.contestants import django_site, needs
from bench.contestants.locks import NO_LIMIT, Lock
from bench.contestants.redis_raw import key_of
from bench.model import Place, Unavailable

Make = Callable[[Place], Any]


class Entry(NamedTuple):
    """One kind of lock for the scenarios.

    Attributes:
        name: the name in the report.
        make: opens a new lock.
        needs: raises `Unavailable` if it is not installed.
        notes: remarks for the report.
        poll: seconds between two polls; 0 if it is woken.
    """

    name: str
    make: Make
    needs: Callable[[], None]
    notes: str = ""
    poll: float = 0.0


def number_of(place: Place) -> int:
    """A 64-bit number for the name of a measurement."""
    return int.from_bytes(hashlib.sha256(key_of(place).encode()).digest()[:8], "big", signed=True)


def server_of(place: Place, kind: str) -> str:
    """The URL of a server, `postgresql` or `mysql`."""
    if kind not in place.facts:
        raise Unavailable(place.facts.get(f"no {kind}", f"no server of {kind}"))
    return place.facts[kind]


def url_of(place: Place, scheme: str) -> str:
    """The URL of one of our stores."""
    if scheme == "sqlite":
        return f"sqlite:///{place.folder}/locks.sqlite3"
    url = server_of(place, scheme.partition("+")[0])
    return f"{scheme}:{url.partition(':')[2]}" + ("" if "+" in scheme else "?create=true")


def interlock(scheme: str) -> Make:
    """Our lock, by the scheme of its store."""

    def make(place: Place) -> Any:
        import interlock

        locks = place.closing.enter_context(interlock.connect(url_of(place, scheme)))
        return locks.lock(key_of(place))

    return make


def interlock_async(scheme: str) -> Make:
    """The same for asyncio; call it inside a running loop."""

    def make(place: Place) -> Any:
        import interlock

        return interlock.aconnect(url_of(place, scheme)).lock(key_of(place))

    return make


class Statements:
    """A lock by two statements on one connection.

    Args:
        ask: performs a statement and reads its reply.
        take, give: the statements.
    """

    def __init__(self, ask: Callable[[str], object], take: str, give: str) -> None:
        self._ask, self._take, self._give = ask, take, give

    def acquire(self) -> object:
        """Perform the first statement."""
        return self._ask(self._take)

    def release(self) -> object:
        """Perform the second statement."""
        return self._ask(self._give)


def psycopg(take: str, give: str) -> Make:
    """Two statements by plain psycopg; `{key}` stands for the number of the lock."""

    def make(place: Place) -> Lock:
        import psycopg

        connection = psycopg.connect(server_of(place, "postgresql"), autocommit=True)
        place.closing.callback(connection.close)
        key = number_of(place)
        return Statements(
            lambda words: connection.execute(words).fetchone(),  # type: ignore[call-overload, unused-ignore]
            take.format(key=key),
            give.format(key=key),
        )

    return make


def get_lock(place: Place) -> Lock:
    """GET_LOCK by plain PyMySQL."""
    import pymysql  # type: ignore[import-untyped]

    parts = urlsplit(server_of(place, "mysql"))
    connection = pymysql.connect(host=parts.hostname, port=parts.port or 3306, user=parts.username, autocommit=True)
    place.closing.callback(connection.close)
    cursor, name = connection.cursor(), hashlib.sha256(key_of(place).encode()).hexdigest()

    def ask(words: str) -> None:
        cursor.execute(words)
        if cursor.fetchone() != (1,):
            raise RuntimeError(f"{words} was refused")

    return Statements(ask, f"SELECT GET_LOCK('{name}', {NO_LIMIT:.0f})", f"SELECT RELEASE_LOCK('{name}')")


def sqlite(take: str, give: str) -> Make:
    """A SQLite transaction to acquire and one to release; like ours, it does not wait for the disk."""

    def make(place: Place) -> Lock:
        connection = sqlite3.connect(place.folder / "raw.sqlite3", NO_LIMIT, isolation_level=None)
        place.closing.callback(connection.close)
        connection.execute("PRAGMA synchronous = off")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("CREATE TABLE IF NOT EXISTS line AS SELECT 0 AS holders")
        connection.execute("COMMIT")

        def ask(words: str) -> None:
            for each in words.split(";"):
                connection.execute(each)

        return Statements(ask, take, give)

    return make


def pals(place: Place) -> Lock:
    """PALs' lock, with a pool that is large enough for the scenarios."""
    import pals
    import sqlalchemy

    url = server_of(place, "postgresql").replace("postgresql:", "postgresql+psycopg:")
    locker = pals.Locker("bench", create_engine_callable=lambda: sqlalchemy.create_engine(url, pool_size=2))
    place.closing.callback(locker.engine.dispose)
    found: Lock = locker.lock(key_of(place), acquire_timeout=int(NO_LIMIT * 1000))
    return found


def raw_is_there() -> None:
    """Require nothing: sqlite3 is part of Python."""


def store(scheme: str) -> Callable[[], None]:
    """Require interlock with a store."""

    def check() -> None:
        needs.interlock()
        import interlock

        try:
            interlock.connect(f"{scheme}://").close()
        except Exception as error:  # a URL without a host or a path may be refused, but not its scheme
            if "Unknown store scheme" in str(error):
                raise Unavailable(f"this interlock has no store {scheme}://") from error

    return check


# A new store needs one row here, and its URL in `url_of`.
OURS = {
    scheme: Entry(name, interlock(scheme), store(scheme), notes)
    for scheme, name, notes in (
        ("postgresql", "interlock PostgreSQL", "a table"),
        ("postgresql+advisory", "interlock PostgreSQL advisory", "advisory locks"),
        ("mysql+advisory", "interlock MariaDB advisory", "GET_LOCK"),
        ("mysql", "interlock MariaDB", "a table"),
        ("sqlite", "interlock SQLite", "a table in a file"),
    )
}
PGLOCK, PALS = "django-pglock", "PALs"
PEERS = (
    Entry(
        PGLOCK,
        django_site.entered(django_site.pg_lock),
        needs.module("pglock", install="django-pglock"),
        "advisory lock; Django's connection",
    ),
    Entry(PALS, pals, needs.module("pals", "Locker", "PALs"), "advisory lock; SQLAlchemy's pool"),
)
ADVISORY, GET_LOCK, IMMEDIATE = "raw pg_advisory_lock", "raw GET_LOCK", "raw BEGIN IMMEDIATE"
SELECTS, WRITES = "two SELECT 1", "two writes of SQLite"
has_psycopg = needs.module("psycopg", "connect", "psycopg[binary]")
LIMITS = (
    Entry(ADVISORY, psycopg("SELECT pg_advisory_lock({key})", "SELECT pg_advisory_unlock({key})"), has_psycopg),
    Entry(GET_LOCK, get_lock, needs.module("pymysql", install="PyMySQL")),
    Entry(IMMEDIATE, sqlite("BEGIN IMMEDIATE", "COMMIT"), raw_is_there, "the transaction is the lock; it polls", 0.1),
)
YARDSTICKS = (
    Entry(SELECTS, psycopg("SELECT 1", "SELECT 1"), has_psycopg, "psycopg; no lock"),
    Entry(
        WRITES,
        sqlite(
            "BEGIN IMMEDIATE;UPDATE line SET holders = holders + 1;COMMIT",
            "BEGIN IMMEDIATE;UPDATE line SET holders = holders - 1;COMMIT",
        ),
        raw_is_there,
        "BEGIN IMMEDIATE, an UPDATE, COMMIT; no lock",
    ),
)
