"""What the URL of advisory locks says."""

import re
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl

from interlock.core.errors import InvalidArgument
from interlock.core.options import number_in
from interlock.core.redaction import is_torn, place_of, read, whole
from interlock.remote.urls import check, conninfo_of, options_in, port_of
from interlock.runtime.process import HOST, pid

MAX_SESSIONS = 32
SEQUENCE = "interlock_fence"
OURS = ("max_sessions", "sequence")  # others are for the library that connects
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
        max_sessions: how many sessions this process may have, each with a lock, waiting for one, or idle.
        sequence: what fences are taken from.
        mysql: True for MariaDB, False for PostgreSQL.
        torn: True if what a library says of the URL may repeat a part of the password.
    """

    conninfo: str
    max_sessions: int
    sequence: str
    mysql: bool = False
    torn: bool = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sequence={self.sequence}>"  # without the password


def options_of(url: SplitResult) -> Options:
    """Read the URL.

    Raises:
        InvalidArgument: an option is out of its range, or stands there twice.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> Options:
    postgresql = url.scheme.startswith("postgresql")
    given = options_in(url) if postgresql else parse_qsl(url.query, keep_blank_values=True)
    query = dict(given)
    for each in OURS:
        if len([name for name, _ in given if name == each]) > 1:
            raise InvalidArgument(f"{place_of(url)}: give {each} one value")
    max_sessions = number_in("max_sessions", query.pop("max_sessions", str(MAX_SESSIONS)))
    sequence = query.pop("sequence", SEQUENCE)
    if not IDENTIFIER.fullmatch(sequence):
        raise InvalidArgument("sequence is a name, or schema.name, of letters, digits and _")
    if url.fragment:
        raise InvalidArgument(f"{place_of(url)}: a # in a password is written %23")
    if postgresql:
        query = DEFAULTS | {"application_name": f"interlock {HOST}:{pid()}"[:63]} | query
        conninfo = conninfo_of(url, query.items())
        with suppress(ImportError):  # which is told when a session is opened
            check(conninfo, url)
    else:
        if query:
            raise InvalidArgument(f"a URL of MariaDB has no option {', '.join(query)}")
        port_of(url)  # which refuses what is none
        conninfo = whole(url._replace(query=""))
    return Options(conninfo, max_sessions, sequence, not postgresql, is_torn(url))
