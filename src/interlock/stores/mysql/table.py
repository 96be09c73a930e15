"""The table of MySQL and MariaDB: a row a name, with its whole line as text, and a version that each swap raises."""

import re

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument

TABLE = "interlock_line"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
DDL = """CREATE TABLE IF NOT EXISTS `{table}` (
  k BINARY(32) NOT NULL,
  line MEDIUMBLOB NOT NULL,
  version BIGINT NOT NULL,
  kept MEDIUMBLOB NULL,
  namespace VARBINARY(4000) NOT NULL,
  name VARBINARY(4000) NOT NULL,
  PRIMARY KEY (k)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC"""


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
