"""How a session with MariaDB is connected."""

import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.core.redaction import UNTOLD
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT
from interlock.stores.mysql.dialling import FAILURES, PORT, failed


def connected(options: Options) -> Any:
    """Return a connection of PyMySQL.

    Raises:
        StoreError: the server can't be reached, or does not let us in.
    """
    url = urlsplit(options.conninfo)
    try:
        return pymysql.connect(
            host=url.hostname or "localhost",
            port=url.port or PORT,
            user=unquote(url.username or ""),
            password=unquote_to_bytes(url.password or ""),  # as PyMySQL takes text for Latin-1
            database=unquote(url.path.lstrip("/")),
            connect_timeout=IO_TIMEOUT,
            read_timeout=IO_TIMEOUT,
            write_timeout=IO_TIMEOUT,
            autocommit=True,
        )
    except FAILURES as error:
        if not options.torn:
            raise failed(error, "MariaDB") from error
    # Not while the error is handled: its own text may show a part of the password.
    raise StoreError(f"MariaDB can't be reached; {UNTOLD}")
