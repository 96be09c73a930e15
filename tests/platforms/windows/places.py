"""The stores of the tests that Windows' Python runs."""

import os
from pathlib import Path
from uuid import uuid4

STORES = os.environ.get("INTERLOCK_TEST_STORES", "memory").split()
"""Stores of these tests: names of stores without a server, and URLs of others."""


def store_name(store: str) -> str:
    """Return the name of a store."""
    return store.partition(":")[0]


def emptied(store: str, folder: Path) -> str:
    """Return the URL of a place for locks that is empty.

    Args:
        store: an element of `STORES`.
        folder: an empty folder.
    """
    name, at = store_name(store), folder.as_posix().lstrip("/")
    if name == "redis":
        import redis

        with redis.Redis.from_url(store) as server:
            server.flushall()
    urls = {
        "memory": f"memory://{uuid4().hex}",
        "file": f"file:///{at}/locks",
        "sqlite": f"sqlite:///{at}/locks.db",
        "postgresql": f"{store}&table=t{uuid4().hex}",
    }
    return urls.get(name, store)
