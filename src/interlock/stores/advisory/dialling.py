"""How a session with MariaDB is connected."""

from typing import Any
from urllib.parse import urlsplit

from interlock.stores.advisory.options import Options
from interlock.stores.advisory.session import IO_TIMEOUT
from interlock.stores.mysql.dialling import arguments_in, dialled


def connected(options: Options) -> Any:
    """Return a connection of PyMySQL.

    Raises:
        StoreError: the server can't be reached, or does not let us in.
    """
    limits = dict.fromkeys(("connect_timeout", "read_timeout", "write_timeout"), IO_TIMEOUT)
    how = {**arguments_in(urlsplit(options.conninfo)), **limits, "autocommit": True}
    return dialled(how, "MariaDB", options.torn)
