"""What a URL says about a store in PostgreSQL."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import SplitResult

from interlock.core.claims import said
from interlock.core.errors import InvalidArgument
from interlock.core.options import flag_in, number_in, seconds_in
from interlock.core.redaction import is_torn, masked, place_of, read, whole
from interlock.stores.sql.ddl import GRACE, TABLE, ddl
from interlock.stores.sql.engines import given_by
from interlock.stores.sql.urls import check, conninfo_of, options_in

IO_TIMEOUT = 5.0  # seconds to wait for an answer
MOST = 4  # connections of a process for its steps, besides the one that listens
_OURS = ("table", "schema", "create", "grace", "max_connections", "timeout")


class Options(NamedTuple):
    """What a URL says about a store.

    Attributes:
        table, schema: where the lines are kept.
        create: True to make the table and the functions if they are not there.
        most: connections for steps.
        io_timeout: seconds to wait for an answer.
        grace: seconds, as for `ddl`, where the table is made.
        where: the database, without a password.
        torn: True if what libpq says may repeat a part of the password.
    """

    table: str = TABLE
    schema: str = ""
    create: bool = False
    most: int = MOST
    io_timeout: float = IO_TIMEOUT
    grace: float = GRACE
    where: str = ""
    torn: bool = False


def options_of(url: SplitResult) -> tuple[Options, str]:
    """Return what a URL says about the store, and the URL that is left for libpq.

    Raises:
        InvalidArgument: a value makes no sense, or stands there twice.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> tuple[Options, str]:
    ours: dict[str, str] = {}
    others: list[tuple[str, str]] = []
    for name, value in options_in(url):
        if name not in _OURS:
            others.append((name, value))
        elif name in ours or not value:
            raise InvalidArgument(f"{masked(whole(url))!r}: give {name} one value")
        else:
            ours[name] = value
    options = _options(ours)._replace(where=place_of(url._replace(scheme="postgresql")), torn=is_torn(url))
    left = conninfo_of(url, others)
    check(left, url)
    return options, left


def options_of_engine(engine: Any) -> Options:
    """Return what the execution options of an engine say about the store.

    Raises:
        InvalidArgument: there is no such option, or a value makes no sense.
    """
    return _options(given_by(engine, _OURS))


def _options(given: Mapping[str, str]) -> Options:
    options = Options(
        given.get("table", TABLE), given.get("schema", ""), flag_in("create", given.get("create", "false")),
        number_in("max_connections", given.get("max_connections", str(MOST))),
        seconds_in("timeout", given.get("timeout", str(IO_TIMEOUT))), _grace(given.get("grace", str(GRACE))),
    )  # fmt: skip
    ddl(options.table, options.schema, options.grace)  # which refuses what makes no sense
    return options


def _grace(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InvalidArgument(f"grace is a number of seconds, not {said(value)}") from None
