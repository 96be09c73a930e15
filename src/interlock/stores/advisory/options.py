"""What the URL of advisory locks says."""

import re
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode

from interlock.core.errors import InvalidArgument
from interlock.runtime.process import HOST, pid

MAX_LOCKS = 1000
MAX_WAITING = 8
SEQUENCE = "interlock_fence"
IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


class Options(NamedTuple):
    """What the URL says.

    Attributes:
        conninfo: how libpq connects.
        max_locks: how many locks of the server's table this process may use.
        max_waiting: how many sessions may wait at a time, beside the one that carries the locks.
        sequence: what fences are taken from.
        mysql: True for MariaDB, False for PostgreSQL.
    """

    conninfo: str
    max_locks: int
    max_waiting: int
    sequence: str
    mysql: bool = False


def options_of(url: SplitResult) -> Options:
    """Read the URL.

    Raises:
        InvalidArgument: an option is out of its range.
    """
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    max_locks = _count(query, "max_locks", MAX_LOCKS)
    max_waiting = _count(query, "max_waiting", MAX_WAITING)
    sequence = query.pop("sequence", SEQUENCE)
    if not IDENTIFIER.fullmatch(sequence):
        raise InvalidArgument("sequence is a name, or schema.name, of letters, digits and _")
    if not url.scheme.startswith("postgresql"):
        if query:
            raise InvalidArgument(f"a URL of MariaDB has no option {', '.join(query)}")
        return Options(url._replace(query="", fragment="").geturl(), max_locks, max_waiting, sequence, mysql=True)
    query = DEFAULTS | {"application_name": f"interlock {HOST}:{pid()}"[:63]} | query
    conninfo = url._replace(scheme="postgresql", query=urlencode(query, quote_via=quote), fragment="").geturl()
    return Options(conninfo, max_locks, max_waiting, sequence)


def _count(query: dict[str, str], name: str, default: int) -> int:
    value = query.pop(name, str(default))
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1_000_000:
        raise InvalidArgument(f"{name} is a whole number from 1, not {value!r}")
    return int(value)
