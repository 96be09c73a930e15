# needs: postgres
import os
from typing import TYPE_CHECKING

import interlock
from alembic import context
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:  # names that the page or the test runner defines
    from collections.abc import Callable

    from interlock import Locks

    downgrade: Callable[[], None]
    locks: Locks
    run_migrations: Callable[[object], None]
    upgrade: Callable[[], None]

metadata = MetaData()
url = os.environ["INTERLOCK_DOCS_POSTGRES"]
engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
ADDRESSES = {
    "postgresql://user:password@host/database": url,
    "postgresql://host/database": url,
    "| psql": f"| psql {url}",
}


async_engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def check() -> None:
    with engine.begin() as connection, EnvironmentContext(Config(), ScriptDirectory("."), fn=lambda rev, context: []):
        run_migrations(connection)
    with engine.begin() as connection:
        with Operations.context(MigrationContext.configure(connection)) as op:
            for step in (downgrade, upgrade):
                step.__globals__["op"] = op
                step()
    with locks.lock("migrated"):
        pass
