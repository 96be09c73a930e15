"""The table of MySQL and MariaDB, and what the steps on it are made of.

Run as a program, it prints the SQL that makes the table: python -m interlock.stores.sql.mysql [TABLE].
"""

import re
import sys
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument

TABLE = "interlock_line"
NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")

DDL = """CREATE TABLE IF NOT EXISTS `{table}` (
  k BINARY(32) NOT NULL,
  line MEDIUMBLOB NOT NULL,
  top BIGINT NOT NULL,
  version BIGINT NOT NULL,
  namespace VARBINARY(4000) NOT NULL,
  name VARBINARY(4000) NOT NULL,
  PRIMARY KEY (k)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""


class Done(NamedTuple):
    """What became of a statement.

    Attributes:
        rows: what it found.
        affected: how many rows it wrote.
        insert_id: what it gave to LAST_INSERT_ID.
    """

    rows: Sequence[Sequence[Any]]
    affected: int
    insert_id: int


class Facts(NamedTuple):
    """What a step must know of the server.

    Attributes:
        may_grant: False as long as somebody may hold what the server has forgotten in a crash.
        longest: seconds of the longest lease that it can keep its word for.
        hint: what to do about that.
    """

    may_grant: bool
    longest: float
    hint: str


Talk = Generator[str, Done, list[Any]]


class Statements(NamedTuple):
    """One step: statements on one connection, one after the other.

    Attributes:
        talk: yields them, and returns the answer.
        io_timeout: seconds to wait for it; None for the usual.
        reserved: True if it has a connection where all others are in use: a lease must not end for that.
    """

    talk: Callable[[Facts], Talk]
    io_timeout: float | None = None
    reserved: bool = False


def checked_table(table: str) -> str:
    """Return the name of a table.

    Raises:
        InvalidArgument: such a name is not possible.
    """
    if not _NAME.fullmatch(table):
        raise InvalidArgument(f"a table has letters, digits and underscores, 64 at most, unlike {said(table)}")
    return table


def ddl(table: str = TABLE) -> str:
    """Return the SQL that makes the table; it may be run again.

    Args:
        table: its name.

    Raises:
        InvalidArgument: such a name is not possible.
    """
    return DDL.format(table=checked_table(table))


if __name__ == "__main__":
    print(f"{ddl(*sys.argv[1:2])};")
