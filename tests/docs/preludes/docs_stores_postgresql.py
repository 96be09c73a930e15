# needs: postgres
import os
from types import SimpleNamespace

import interlock
from sqlalchemy import create_engine, text

url = os.environ["INTERLOCK_DOCS_POSTGRES"]
engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
ADDRESSES = {
    "postgresql://user:password@host/database": url,
    "postgresql://host/database": url,
    "| psql": f"| psql {url}",
}


def execute(statements):
    with engine.begin() as connection:
        connection.execute(text(statements))


op = SimpleNamespace(execute=execute)
