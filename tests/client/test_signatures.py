"""Positional arguments: keyword-only options can be reordered and extended later."""

import inspect
from collections.abc import Callable
from typing import Any, get_overloads, get_type_hints

import pytest

from interlock import aconnect, connect
from interlock.api._async.locks import AsyncLockOptions, AsyncLocks
from interlock.api._sync.locks import LockOptions, Locks
from interlock.client._async.lock import AsyncLockable
from interlock.client._sync.lock import Lockable

CLASSES = (Locks, AsyncLocks, Lockable, AsyncLockable)
METHODS = [
    getattr(each, name)
    for each in CLASSES
    for name, _ in inspect.getmembers(each, inspect.isfunction)
    if name == "__init__" or not name.startswith("_")
]
BY_POSITION = {  # as in the standard library
    "connect": ["url"],
    "aconnect": ["url"],
    "claims": ["name"],
    "evict": ["name", "id"],
    "acquire": ["blocking", "timeout"],
}


@pytest.mark.parametrize("method", [*METHODS, connect, aconnect], ids=lambda method: method.__qualname__)
def test_options_are_given_by_name_and_what_is_needed_either_way(method: Callable[..., Any]) -> None:
    options = [each for each in inspect.signature(method).parameters.values() if each.default is not each.empty]
    assert [each.name for each in options if each.kind is not each.KEYWORD_ONLY] == BY_POSITION.get(
        method.__name__, []
    )
    kinds = {each.kind for each in inspect.signature(method).parameters.values()}
    assert inspect.Parameter.POSITIONAL_ONLY not in kinds


def options_of(method: Callable[..., Any]) -> dict[str, tuple[object, object]]:
    """Return the type and the default of each option of a method."""
    found = inspect.signature(method).parameters.values()
    return {each.name: (each.annotation, each.default) for each in found if each.kind is each.KEYWORD_ONLY}


@pytest.mark.parametrize("locks", [Locks, AsyncLocks])
@pytest.mark.parametrize(
    ("method", "without"),
    [
        ("semaphore", ()),
        ("rwlock", ()),
        ("rlock", ()),
        ("guard", ()),
        ("one_of", ("at_least",)),
        ("once", ("at_least", "at_most", "on_wanted", "max_waiters")),
    ],
)
def test_each_kind_of_lock_has_the_options_of_lock(locks: type, method: str, without: tuple[str, ...]) -> None:
    """They are written out, so that `help()` and the reference list them; this keeps the lists equal (ADR 27)."""
    expected = {name: option for name, option in options_of(locks.lock).items() if name not in without}
    found = getattr(locks, method)
    for each in get_overloads(found) or [found]:
        assert options_of(each).items() >= expected.items()
        assert not {*without} & {*options_of(each)}


@pytest.mark.parametrize(("locks", "options"), [(Locks, LockOptions), (AsyncLocks, AsyncLockOptions)])
def test_the_type_of_the_options_is_that_of_lock(locks: type, options: type) -> None:
    expected = {name: annotation for name, (annotation, _) in options_of(locks.lock).items() if name != "timeout"}
    assert get_type_hints(options) == expected
