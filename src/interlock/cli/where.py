"""Which locks the commands work on: those of a URL, or those that a program gives which contains the command."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import interlock
from interlock.client.connect import default_url
from interlock.core.redaction import masked

_given: tuple[Callable[[str], interlock.Locks], str] | None = None
_alone = False


@contextmanager
def given(locks: Callable[[str], interlock.Locks] | None, called: str, alone: bool) -> Iterator[None]:
    """Meanwhile, use what `locks(namespace)` returns wherever no --store is given.

    Args:
        locks: makes them; each command closes what it got.
        called: what `doctor` calls the store.
        alone: whether the process is the command's, and no program's that contains it.
    """
    global _given, _alone
    before = _given, _alone
    _given, _alone = None if locks is None else (locks, called), alone
    try:
        yield
    finally:
        _given, _alone = before


def is_alone() -> bool:
    """True if the process is the command's: all its children are, too."""
    return _alone


def is_given(store: str | None) -> bool:
    """True if the locks are those of the program."""
    return store is None and _given is not None


def connect(store: str | None, namespace: str) -> interlock.Locks:
    """Return the locks that a command works on, as `interlock.connect`."""
    if store is None and _given is not None:
        return _given[0](namespace)
    return interlock.connect(store, namespace=namespace)


def called(store: str | None) -> str:
    """Return what to call the store: its URL, without passwords, or the program's word for it."""
    if store is None and _given is not None:
        return _given[1]
    return masked(default_url() if store is None else store)
