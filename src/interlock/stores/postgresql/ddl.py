"""The SQL that creates the table and the functions of a store; the database's owner may run it by hand."""

import re
from functools import cache
from pkgutil import get_data  # importlib.resources loads a dozen modules
from typing import NamedTuple, cast

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument

TABLE = "interlock_line"
GRACE = 30.0  # seconds
LONGEST = 48  # characters: the names of functions begin with that of the table, and PostgreSQL cuts after 63
FUNCTIONS = ("begin", "opening", "durable", "free_slot", "walk", "enter", "leave", "kept", "adopt", "renew", "sweep")
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


class Names(NamedTuple):
    """The quoted names of the table and its functions.

    Attributes:
        table: the table.
        primary: its primary key.
        alive: the unlogged table, which a crash empties.
        alive_index: its index.
        prefix: the beginning of the names of all functions, without the closing quote.
    """

    table: str
    primary: str
    alive: str
    alive_index: str
    prefix: str

    def function(self, name: str) -> str:
        """Return the quoted name of a function."""
        return f'{self.prefix}_{name}"'


def names_of(table: str = TABLE, schema: str = "") -> Names:
    """Return the quoted names of a table and its functions.

    Args:
        table: lowercase letters, digits and underscores.
        schema: the same; empty for the first schema of the search path.

    Raises:
        InvalidArgument: a name is not allowed.
    """
    for what, name in (("table", table), ("schema", schema)):
        if (name or what == "table") and not (_NAME.fullmatch(name) and len(name) <= LONGEST):
            raise InvalidArgument(
                f"a {what} has lowercase letters, digits and underscores, {LONGEST} at most, unlike {said(name)}"
            )
    where = f'"{schema}".' if schema else ""
    return Names(
        f'{where}"{table}"', f'"{table}_pkey"', f'{where}"{table}_alive"', f'"{table}_alive_idx"', f'{where}"{table}'
    )


@cache
def ddl(table: str = TABLE, schema: str = "", grace: float = GRACE) -> str:
    """Return the SQL that creates the table and the functions in PostgreSQL; it may be run again.

    Args:
        table: the name of the table; the names of its functions begin with it.
        schema: an existing schema; empty for the first one of the search path.
        grace: seconds after a crash of the server in which it grants no lock. Shorter leases are committed
            asynchronously, longer ones synchronously; with 0 all commits are synchronous.

    Raises:
        InvalidArgument: a name or the grace is not allowed.
    """
    names = names_of(table, schema)
    if not 0 <= grace <= 86400:  # refuses NaN too
        raise InvalidArgument(f"the grace is 0 to 86400 seconds, not {grace}")
    functions = {name: names.function(name) for name in FUNCTIONS}
    text = cast(bytes, get_data(__package__, "functions.sql")).decode()
    return text.format(
        table=names.table,
        primary=names.primary,
        alive=names.alive,
        alive_index=names.alive_index,
        grace=int(grace * 1_000_000),
        **functions,
    )


def undo(table: str = TABLE, schema: str = "") -> str:
    """Return the SQL that drops the tables and functions of `ddl`, with all locks.

    Args:
        table, schema: as for `ddl`.

    Raises:
        InvalidArgument: a name is not allowed.
    """
    names = names_of(table, schema)
    drops = [f"DROP FUNCTION IF EXISTS {names.function(name)};" for name in reversed(FUNCTIONS)]
    return "\n".join([*drops, f"DROP TABLE IF EXISTS {names.alive};", f"DROP TABLE IF EXISTS {names.table};"])


def statements(text: str) -> list[str]:
    """Split SQL into its statements, for drivers that accept one at a time.

    Args:
        text: the result of `ddl` or `undo`.
    """
    found, inside = [""], False
    for line in text.splitlines():
        if line.startswith("--"):
            continue
        found[-1] += line + "\n"
        inside ^= line.count("$$") % 2 == 1
        if line.endswith(";") and not inside:
            found.append("")
    return [each.strip() for each in found if each.strip()]
