"""Production code without a safeguard: a snippet of its source is replaced, and the text is executed as a module.

So production code needs no hooks for the checker.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from inspect import getsource
from types import ModuleType
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """The replacement of a snippet in a module.

    Attributes:
        module: the full name of the module.
        old: the snippet, which must occur exactly once.
        new: the text that replaces it.
    """

    module: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard removed: the checker must find a fault, or the safeguard would not be needed.

    Attributes:
        name: the missing safeguard.
        expected: a part of the finding.
        world: the world in which it is caught; the world itself may be the mutant.
        change: the change of the code, or what makes another system of the world; None if only the world is changed.
        fair: True to look for starvation.
    """

    name: str
    expected: str
    world: Any
    change: Any = None
    fair: bool = False


def changed(change: Change) -> Any:
    """Return a new module made of a module's source with one snippet replaced; it shares named tuples and errors.

    Args:
        change: the replacement.

    Raises:
        ValueError: the snippet does not occur exactly once.
    """
    original = import_module(change.module)
    source = getsource(original)
    times = source.count(change.old)
    if times != 1:
        raise ValueError(f"this is {times} times in {change.module}, not once:\n{change.old}")
    module = executed(original, source.replace(change.old, change.new))
    for name, value in vars(original).items():
        if isinstance(value, type) and issubclass(value, tuple | BaseException):
            setattr(module, name, value)
    return module


def executed(original: ModuleType, source: str) -> ModuleType:
    """Execute a text as a module in the place of another."""
    module = ModuleType(original.__name__)
    exec(compile(source, original.__file__ or original.__name__, "exec"), module.__dict__)
    return module
