"""Private servers for benchmarks of locks in SQL databases, with default durability."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.model import Facts, Unavailable

DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
MARIADB_DURABLE = {
    "innodb-flush-log-at-trx-commit": "1",
    "innodb-flush-method": "O_DIRECT",
    "innodb-doublewrite": "1",
}


@contextmanager
def stage() -> Iterator[Facts]:
    """A PostgreSQL server, and a MariaDB server if it is installed."""
    # Imported here, since the command's help needs no server.
    from tests.servers import MariaServer, Missing, PostgresServer

    with ExitStack() as closing:
        try:
            postgres = closing.enter_context(PostgresServer(config=DURABLE))
        except Missing as missing:
            raise Unavailable(str(missing)) from missing
        facts = {"postgresql": postgres.url, "host": postgres.host, "port": str(postgres.port), "user": postgres.user}
        try:
            maria = closing.enter_context(MariaServer(config=MARIADB_DURABLE))
        except Missing as missing:
            facts["no mysql"] = str(missing)
        else:
            facts["mysql"] = maria.url
        yield {**facts, "url": "redis://nowhere"}  # required by Django's settings, and not used by these locks
