"""The SQL that creates the table and functions; the owner may run it by hand."""

import re
from functools import cache
from pkgutil import get_data  # importlib.resources loads a dozen modules
from typing import cast

from interlock.core.claims import shown_value
from interlock.core.errors import InvalidArgument

TABLE = "interlock_line"
GRACE = 30.0  # seconds
MAX_NAME_LENGTH = 48  # characters: the names of functions begin with that of the table, and PostgreSQL cuts after 63
FUNCTIONS = ("begin", "opening", "durable", "free_slot", "walk", "enter", "leave", "kept", "adopt", "renew", "sweep")
# A function has several versions if clients of several versions have created them.
_DROP_FUNCTIONS = """DO $$ DECLARE
  function regprocedure;
BEGIN
  FOR function IN
    SELECT p.oid FROM pg_proc p WHERE p.proname ~ '^{bare}_({parts})$'
    AND p.pronamespace = coalesce(
      (SELECT c.relnamespace FROM pg_class c WHERE c.oid = to_regclass('{table}')), to_regnamespace({home})
    )
  LOOP
    EXECUTE 'DROP FUNCTION ' || function;
  END LOOP;
END $$;"""
_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def names_of(table: str = TABLE, schema: str = "") -> dict[str, str]:
    """Return the quoted names of a table and its functions, by placeholder.

    Args:
        table: lowercase letters, digits and underscores.
        schema: like `table`; empty for the first schema of the search path.

    Raises:
        InvalidArgument: a name is not allowed.
    """
    for what, name in (("table", table), ("schema", schema)):
        if (name or what == "table") and not (_NAME.fullmatch(name) and len(name) <= MAX_NAME_LENGTH):
            raise InvalidArgument(
                f"The {what} must have 1 to {MAX_NAME_LENGTH} lowercase letters, digits and underscores, "
                f"unlike {shown_value(name)}."
            )
    where = f'"{schema}".' if schema else ""
    names = {each: f'{where}"{table}_{each}"' for each in ("alive", *FUNCTIONS)}
    names |= {"bare": table, "parts": "|".join(("alive", *FUNCTIONS))}
    return names | {"table": f'{where}"{table}"', "primary": f'"{table}_pkey"', "alive_index": f'"{table}_alive_idx"'}


@cache
def ddl(table: str = TABLE, schema: str = "", grace: float = GRACE) -> str:
    """Return the SQL that creates the table and functions; it may run repeatedly.

    Args:
        table: the name of the table; the names of its functions begin with it.
        schema: an existing schema; empty for the first one of the search path.
        grace: seconds after a crash of the server in which it grants no lock. Shorter leases are committed
            asynchronously, longer ones synchronously; with 0 all commits are synchronous.

    Raises:
        InvalidArgument: a name or the grace is not allowed.
    """
    names = names_of(table, schema)
    if not 0 <= grace <= 86400:  # also refuses NaN
        raise InvalidArgument(f"grace must be between 0 and 86400 seconds, not {grace}.")
    text = cast(bytes, get_data(__package__, "functions.sql")).decode()
    return text.format(grace=int(grace * 1_000_000), **names)


def undo(table: str = TABLE, schema: str = "") -> str:
    """Return the SQL that drops the tables and functions of `ddl`, with all locks.

    Args:
        table, schema: as for `ddl`.

    Raises:
        InvalidArgument: a name is not allowed.
    """
    names = names_of(table, schema)
    home = f"'{schema}'" if schema else "quote_ident(current_schema())"  # if the table was dropped before
    drops = _DROP_FUNCTIONS.format(home=home, **names)
    return "\n\n".join([drops, *(f"DROP TABLE IF EXISTS {names[each]};" for each in ("alive", "table"))])


def statements(text: str) -> list[str]:
    """Split SQL into its statements, for drivers that accept one at a time.

    Args:
        text: the result of `ddl` or `undo`, in which empty lines separate the statements.
    """
    return text.strip().split("\n\n")
