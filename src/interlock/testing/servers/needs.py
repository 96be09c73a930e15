"""What tests say when a server can't be had: loudly that they tested nothing, and where tests must count, failure."""

import os
from typing import Literal, TypeAlias, get_args

from interlock.testing.servers.home import Missing
from interlock.testing.servers.mariadb import mariadb_programs
from interlock.testing.servers.postgres import postgres_programs
from interlock.testing.servers.redis_server import binary
from interlock.testing.servers.tls import openssl

Need: TypeAlias = Literal["valkey", "redis", "tls", "postgres", "mariadb"]


def available(kind: Need) -> str | None:
    """Tell why a server of this kind can't be started here; None if it can.

    Args:
        kind: "valkey", "redis", "tls" (certificates), "postgres" or "mariadb".
    """
    if kind not in get_args(Need):
        raise ValueError(f"one of {', '.join(get_args(Need))}, not {kind!r}")
    try:
        if kind == "valkey" or kind == "redis":
            binary(kind)
        elif kind == "tls":
            openssl()
        elif kind == "postgres":
            postgres_programs()
        else:
            mariadb_programs()
    except Missing as error:
        return str(error)
    return None


def need(kind: Need) -> None:
    """In a test or a fixture: go on only if such a server can be started.

    If not, the test fails where the environment has `CI` set; elsewhere it is skipped, and the summary says so.

    Args:
        kind: as for `available`.
    """
    import pytest

    reason = available(kind)
    if reason is None:
        return
    if os.environ.get("CI"):
        pytest.fail(f"NOT TESTED on {kind}, and CI is set: {reason}", pytrace=False)
    pytest.skip(f"NOT TESTED on {kind}: {reason}")
