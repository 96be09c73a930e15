"""What goes wrong when PyMySQL connects."""

import pymysql  # type: ignore[import-untyped]

from interlock.core.errors import StoreError
from interlock.stores.mysql.problems import not_connected

PORT = 3306
CRYPTOGRAPHY = "the package cryptography: pip install cryptography, or let the account log in by TLS"
FAILURES = (pymysql.Error, OSError, UnicodeError, RuntimeError)
"""Also that a host name can't be encoded, or that a package is not there."""


def failed(error: BaseException, where: str) -> StoreError:
    """Return what a failure to connect means."""
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return StoreError(f"{where} can't be reached: this account's way to log in needs {CRYPTOGRAPHY} ({error})")
    return not_connected(error, where)
