"""Renaming inside values (ids of records, for example), for states that differ only in names."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def permutation(names: Mapping[Hashable, Hashable]) -> dict[Hashable, Hashable]:
    """Return the smallest permutation that contains a renaming.

    A name that is the target of a renaming but is not renamed itself is mapped to the first name of its chain, so
    that two different names never become equal.

    Args:
        names: old name to new name, one to one.

    Raises:
        ValueError: two names would become equal.
    """
    if len(set(names.values())) != len(names):
        raise ValueError(f"two names would become one: {dict(names)!r}")
    result = dict(names)
    backwards = {new: old for old, new in names.items()}
    for name in names.values():
        if name not in names:
            end = name
            while end in backwards:
                end = backwards[end]
            result[name] = end
    return result


def renamed(value: Any, names: Mapping[Hashable, Hashable]) -> Any:
    """Return the value with every name in it replaced, at any depth; the value itself if it contains none.

    Args:
        value: tuples, lists, sets, mappings, dataclasses and exceptions are searched; other objects are not.
        names: old name to new name. Names are matched by type and value.
    """
    new = _lookup(value, names)
    if new is not None:
        return new
    if isinstance(value, tuple):
        return _rebuilt_tuple(value, names)
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    if isinstance(value, set | frozenset):
        return type(value)(renamed(item, names) for item in value)
    if isinstance(value, dict):
        return {renamed(key, names): renamed(item, names) for key, item in value.items()}
    if isinstance(value, BaseException):
        return _rebuilt_exception(value, names)
    if is_dataclass(value) and not isinstance(value, type):
        return _rebuilt_dataclass(value, names)
    return value


def mentions(key: Hashable) -> Iterator[Hashable]:
    """Yield every value in a frozen key that may be a name: all leaves and all tuples."""
    yield key
    if isinstance(key, tuple | frozenset):
        for item in key:
            yield from mentions(item)


def _lookup(value: Any, names: Mapping[Hashable, Hashable]) -> Any:
    try:
        new = names.get(value)
    except TypeError:  # cannot be hashed, so it is no name
        return None
    # Not for True, which is equal to 1, nor for a tuple of another class.
    return new if type(new) is type(value) else None


def _rebuilt_tuple(value: tuple[Any, ...], names: Mapping[Hashable, Hashable]) -> tuple[Any, ...]:
    items = [renamed(item, names) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    return tuple.__new__(type(value), items)


def _rebuilt_dataclass(value: Any, names: Mapping[Hashable, Hashable]) -> Any:
    changed = {}
    for field in fields(value):
        if hasattr(value, field.name):
            old = getattr(value, field.name)
            new = renamed(old, names)
            if new is not old:
                changed[field.name] = new
    if not changed:
        return value
    result = copy.copy(value)
    for name, new in changed.items():
        object.__setattr__(result, name, new)  # also where the class is frozen
    return result


def _rebuilt_exception(value: BaseException, names: Mapping[Hashable, Hashable]) -> BaseException:
    arguments = renamed(value.args, names)
    if arguments is value.args:
        return value
    result = copy.copy(value)
    result.args = arguments
    return result
