"""From a URL to a store: the registry of schemes, and `connect`."""

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from interlock.claims import DEFAULT_TTL, MAX_NAME, checked_text, checked_ttl
from interlock.errors import InvalidArgument, StoreError
from interlock.stores.base import Store
from interlock.threads.connection import Locks

if TYPE_CHECKING:
    from interlock.aio.connection import AsyncLocks

BUILT_IN = {"memory": "interlock.stores.memory:MemoryStore", "file": "interlock.stores.files:FileStore"}


def default_url() -> str:
    """Return $INTERLOCK_URL, or the file store in the user's runtime folder."""
    url = os.environ.get("INTERLOCK_URL")
    if url:
        return url
    from interlock.stores.files import runtime_folder

    return "file://" + runtime_folder()


def open_store(url: str | None) -> Store:
    """Return the store that `url` names.

    Args:
        url: scheme://…; None for `default_url()`.

    Raises:
        InvalidArgument: not a URL, or a scheme that no installed store has.
        StoreError: the store can't be used.
    """
    if url is None:
        url = default_url()
    if not isinstance(url, str) or "://" not in url:
        raise InvalidArgument(f"{url!r} is no store URL; give one like 'file:///var/lib/app/locks' or 'memory://'")
    parts = urlsplit(url)
    store: Store = _factory(parts.scheme).from_url(parts)
    return store


def check_arguments(namespace: str, ttl: float) -> None:
    """Check what a connection is made with, before a store is opened."""
    checked_text(namespace, "namespace", MAX_NAME)
    checked_ttl(ttl)


def _factory(scheme: str) -> Any:
    built_in = BUILT_IN.get(scheme)
    if built_in is not None:
        from importlib import import_module

        module, _, name = built_in.partition(":")
        return getattr(import_module(module), name)
    from importlib.metadata import entry_points

    points = {point.name: point for point in entry_points(group="interlock.stores")}
    if scheme not in points:
        known = ", ".join(sorted({*BUILT_IN, *points}))
        raise InvalidArgument(f"no store has the scheme {scheme!r}; installed are: {known}")
    try:
        return points[scheme].load()
    except ImportError as error:
        raise StoreError(f"the store of {scheme}:// can't be imported; install what it needs: {error}") from error


def connect(url: str | None = None, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> Locks:
    """Return the locks of a store, for threads.

    Args:
        url: file:///folder, memory://, or the scheme of an installed store; None for $INTERLOCK_URL, else files in
            the user's runtime folder.
        namespace: separates applications that share a store.
        ttl: seconds of lease of the locks made here, unless they say otherwise.

    Raises:
        InvalidArgument: an argument is out of its range, or nobody knows the scheme.
        StoreError: the store can't be used; the message says what to do.
    """
    check_arguments(namespace, ttl)
    return Locks(open_store(url), namespace=namespace, ttl=ttl)


def aconnect(url: str | None = None, *, namespace: str = "", ttl: float = DEFAULT_TTL) -> "AsyncLocks":
    """Return the locks of a store, for asyncio tasks; a plain function, as `connect`.

    Args:
        url, namespace, ttl: as for `connect`.

    Raises:
        InvalidArgument: an argument is out of its range, or nobody knows the scheme.
        StoreError: the store can't be used; the message says what to do.
    """
    # Loaded here, so that programs without an event loop start without asyncio.
    from interlock.aio.connection import AsyncLocks

    check_arguments(namespace, ttl)
    return AsyncLocks(open_store(url), namespace=namespace, ttl=ttl)
