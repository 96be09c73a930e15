"""Snapshots of values and of suspended coroutines: hashable keys that are equal if the originals behave alike.

Two snapshots of a coroutine (or a generator) are equal if the whole chain of `await` and `yield from` is at the same
instructions, with equal live variables and equal values on the interpreter's stack (the iterator of a `for` loop, a
partly evaluated expression, the exception being handled).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import CellType, CodeType, CoroutineType, FrameType, FunctionType, GeneratorType, MethodType
from typing import Any, NamedTuple

from model_checker.frames import live_variables

_PLAIN = frozenset({int, str, bytes, type(None)})
_BY_VALUE = (bool, float, complex, range)


class Position(NamedTuple):
    """The position of one suspended frame, and its live variables."""

    code: CodeType
    offset: int
    names: tuple[str, ...]


class Snapshot(NamedTuple):
    """A suspended coroutine: one position for each level of `await` or `yield from`, and the live values."""

    positions: tuple[Position, ...]
    values: tuple[Hashable, ...]


def frozen(value: object) -> Hashable:
    """Return a hashable key for a value, different for values of different type or content.

    Numbers, strings, enums, tuples, lists, sets, mappings, dataclasses, objects with `__slots__` and no `__dict__`,
    exceptions, functions, built-in iterators and suspended coroutines are keyed by content. Every other object counts
    as a constant, keyed by its type alone.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if type(value) is tuple:
        return tuple(map(frozen, value))
    if kind in _BY_VALUE:
        return (kind, value)  # with the type, since True equals 1
    if isinstance(value, Enum):
        return (kind, value.name)
    if isinstance(value, tuple | list | str | bytes | int | float):
        return _frozen_builtin(value)
    if isinstance(value, set | frozenset):
        return (kind, frozenset(map(frozen, value)))
    if isinstance(value, Mapping):
        return (kind, tuple((frozen(key), frozen(item)) for key, item in value.items()))
    if isinstance(value, BaseException):
        return (kind, frozen(value.args), frozen(vars(value)))
    if not isinstance(value, type):
        names = _attributes(value)
        if names:
            return (kind, *(frozen(getattr(value, name, None)) for name in names))
    return _frozen_code(value)


def _attributes(value: object) -> list[str]:
    """The names of the attributes of a data object; none for any other object."""
    if is_dataclass(value):
        return [field.name for field in fields(value)]
    if hasattr(value, "__dict__"):
        return []
    slots = [vars(each).get("__slots__", ()) for each in type(value).__mro__]
    return [name for names in slots for name in ((names,) if isinstance(names, str) else names)]


def _frozen_builtin(value: tuple[object, ...] | list[object] | str | bytes | float) -> Hashable:
    """A list, or a value of a class derived from a built-in one."""
    kind = type(value)
    if isinstance(value, tuple | list):
        return (kind, *map(frozen, value))
    base: type = next(each for each in (str, bytes, int, float) if isinstance(value, each))
    return (kind, base(value))


def _frozen_code(value: object) -> Hashable:
    """Functions with their closures, methods, coroutines, iterators; everything else by its type."""
    kind = type(value)
    if isinstance(value, FunctionType):
        cells = tuple(map(_cell_content, value.__closure__ or ()))
        return ("function", value.__module__, value.__qualname__, cells)
    if isinstance(value, MethodType):
        return ("method", value.__func__.__qualname__, frozen(value.__self__))
    if isinstance(value, GeneratorType | CoroutineType):
        return ("suspended", snapshot(value))
    if isinstance(value, type):
        return ("class", value.__module__, value.__qualname__)
    if isinstance(value, Iterator) and kind.__module__ == "builtins":
        return (kind, _frozen_iterator(value))
    return ("object", kind.__module__, kind.__qualname__)


def _cell_content(cell: CellType) -> Hashable:
    try:
        return frozen(cell.cell_contents)
    except ValueError:  # not filled yet
        return ("empty",)


def _frozen_iterator(iterator: Iterator[object]) -> Hashable:
    match iterator.__reduce__():
        case (_, (list() | tuple() as items,), int(position)):
            return tuple(map(frozen, items[position:]))  # the items before do not matter any more
        case (_, *rest):
            return tuple(map(frozen, rest))
        case name:
            return name


def snapshot(suspended: Any) -> Snapshot:
    """Return the local state of a coroutine or a generator, and of all those that it awaits.

    Args:
        suspended: a suspended or finished coroutine or generator, not a running one.
    """
    positions: list[Position] = []
    values: list[Hashable] = []
    frame, inner = _frame(suspended)
    while frame is not None:
        variables = dict(frame.f_locals)
        live = live_variables(frame.f_code).get(frame.f_lasti, frozenset(variables))
        names = tuple(sorted(live & variables.keys()))
        positions.append(Position(frame.f_code, frame.f_lasti, names))
        values += [frozen(variables[name]) for name in names]
        values += map(frozen, _stack(suspended, frame, variables, inner))
        suspended = inner
        frame, inner = _frame(suspended)
    if suspended is not None and not isinstance(suspended, GeneratorType | CoroutineType):
        values.append(frozen(suspended))
    return Snapshot(tuple(positions), tuple(values))


def _frame(suspended: Any) -> tuple[FrameType | None, Any]:
    """The frame of a coroutine or a generator, None if it has ended; and the one that it awaits."""
    if isinstance(suspended, CoroutineType):
        return suspended.cr_frame, suspended.cr_await
    if isinstance(suspended, GeneratorType):
        return suspended.gi_frame, suspended.gi_yieldfrom
    return None, None


def _stack(suspended: Any, frame: FrameType, variables: dict[str, Any], inner: Any) -> list[object]:
    """The values on the stack of a suspended frame.

    Python does not expose them, but the garbage collector must visit them: they are the coroutine's referents without
    its variables and its internal objects.
    """
    code = frame.f_code
    shared = {*code.co_cellvars, *code.co_freevars}  # these are referred to through cells
    known: list[object] = [value for name, value in variables.items() if name not in shared]
    known += [code, frame, frame.f_locals, suspended.__name__, suspended.__qualname__]
    if inner is not None:
        known.append(inner)
    surplus = Counter(map(id, known))
    left = []
    for referent in gc.get_referents(suspended):
        if surplus[id(referent)] > 0:
            surplus[id(referent)] -= 1
        elif not _administration(referent, code):
            left.append(referent)
    return left


def _administration(referent: object, code: CodeType) -> bool:
    if isinstance(referent, FunctionType):
        return referent.__code__ is code
    return isinstance(referent, CellType | FrameType) or referent is code
