# needs: postgres
import os
from typing import TYPE_CHECKING

import interlock
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

if TYPE_CHECKING:  # names that the page or the test runner defines
    from collections.abc import Callable

    from interlock import Locks

    downgrade: Callable[[], None]
    locks: Locks
    upgrade: Callable[[], None]

url = os.environ["INTERLOCK_DOCS_POSTGRES"]
engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
ADDRESSES = {
    "postgresql://user:password@host/database": url,
    "postgresql://host/database": url,
    "| psql": f"| psql {url}",
}


async_engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))


def check() -> None:
    with engine.begin() as connection:
        with Operations.context(MigrationContext.configure(connection)) as op:
            for step in (downgrade, upgrade):
                step.__globals__["op"] = op
                step()
    with locks.lock("migrated"):
        pass
