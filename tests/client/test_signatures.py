"""Positional arguments: keyword-only options can be reordered and extended later."""

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from interlock import aconnect, connect
from interlock.api._async.locks import AsyncLocks
from interlock.api._sync.locks import Locks
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
    "evict": ["id"],
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
