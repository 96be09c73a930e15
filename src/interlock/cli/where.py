"""Which locks the commands work on: those of a URL, or those that a program gives which contains the command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock import Locks

_given: "tuple[Callable[[str], Locks], str] | None" = None


@contextmanager
def given(locks: "Callable[[str], Locks] | None", called: str) -> Iterator[None]:
    """Meanwhile, use what `locks(namespace)` returns wherever no --store is given.

    Args:
        locks: makes them; each command closes what it got.
        called: what `doctor` calls the store.
    """
    global _given
    before, _given = _given, None if locks is None else (locks, called)
    try:
        yield
    finally:
        _given = before


def is_given(store: str | None) -> bool:
    """True if the locks are those of the program."""
    return store is None and _given is not None


def connect(store: str | None, namespace: str) -> "Locks":
    """Return the locks that a command works on, as `interlock.connect`."""
    if store is None and _given is not None:
        return _given[0](namespace)
    from interlock.urls import connect as connect_to

    return connect_to(store, namespace=namespace)


def called(store: str | None) -> str:
    """Return what to call the store: its URL, which may have a password, or the program's word for it."""
    if store is None and _given is not None:
        return _given[1]
    from interlock.urls import default_url

    return default_url() if store is None else store
