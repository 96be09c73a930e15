"""How PyMySQL connects by a URL, and what goes wrong there."""

import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, unquote, unquote_to_bytes

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.core.redaction import UNTOLD
from interlock.stores.mysql.problems import not_connected
from interlock.remote.failures import Unreachable
from interlock.remote.urls import port_of

PORT = 3306
CRYPTOGRAPHY = "the package cryptography: pip install cryptography, or let the account log in by TLS"
FAILURES = (pymysql.Error, OSError, UnicodeError, RuntimeError)
"""Also that a host name can't be encoded, or that a package is not there."""


def arguments_in(url: SplitResult) -> dict[str, Any]:
    """Return what a URL says of the server, the account and the database, as arguments of PyMySQL.

    Raises:
        InvalidArgument: its port is none.
    """
    return {
        "host": url.hostname or "localhost",
        "port": port_of(url) or PORT,
        "user": unquote(url.username or ""),
        "password": unquote_to_bytes(url.password or ""),  # as PyMySQL takes text for Latin-1
        "database": unquote(url.path.lstrip("/")),
    }


def dialled(how: Mapping[str, Any], where: str, torn: bool) -> Any:
    """Return a new connection of PyMySQL.

    Args:
        how: its arguments.
        where: which database, without a password.
        torn: True if what PyMySQL says may repeat a part of the password.

    Raises:
        Unreachable: nobody answers, or not now.
        StoreError: the server does not let us in.
    """
    try:
        return pymysql.connect(**how)
    except FAILURES as error:
        if not torn:
            raise failed(error, where) from error
    # Not while the error is handled: its own text may show a part of the password.
    raise Unreachable(f"{where} can't be reached; {UNTOLD}")


def failed(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means."""
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return StoreError(f"{where} can't be reached: this account's way to log in needs {CRYPTOGRAPHY} ({error})")
    return not_connected(error, where)
