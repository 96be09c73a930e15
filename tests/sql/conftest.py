"""Databases for the tests on rows: SQLite, and private servers of PostgreSQL and MariaDB."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine

from tests.servers import MariaServer, PostgresServer, need

SCHEMES = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, PostgresServer | MariaServer]]:
    """The servers that the tests need."""
    with ExitStack() as stack:
        started: dict[str, PostgresServer | MariaServer] = {}
        yield started
        for server in started.values():
            stack.callback(server.close)


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def url(request: pytest.FixtureRequest, servers: dict[str, PostgresServer | MariaServer], tmp_path: Path) -> str:
    """SQLAlchemy's URL of each kind of database."""
    kind = request.param
    if kind == "sqlite":
        return f"sqlite:///{tmp_path / 'rows.db'}"
    need(kind)
    if kind not in servers:
        servers[kind] = PostgresServer() if kind == "postgres" else MariaServer()
        servers[kind].start()
    server = servers[kind]
    return f"{SCHEMES[kind]}://{server.user}@{server.host}:{server.port}/{server.database}"


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """An engine on each kind of database, with SQLAlchemy's default settings."""
    engine = create_engine(url)
    yield engine
    engine.dispose()
