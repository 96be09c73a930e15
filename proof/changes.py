"""Production code without a safeguard: a snippet of its source is replaced, and the text is executed as a module.

So production code needs no hooks for the checker.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


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


def changed(change: Change | str) -> ModuleType:
    """Return a new module made of a module's source with one snippet replaced.

    Args:
        change: the replacement; or only the name of a module, for its unchanged source.

    Raises:
        ValueError: the snippet does not occur exactly once.
    """
    if isinstance(change, str):
        change = Change(change, "", "")
    found = find_spec(change.module)
    if found is None or found.origin is None or not found.has_location:
        raise ValueError(f"there is no source of {change.module}")
    source = Path(found.origin).read_text()
    times = source.count(change.old) if change.old else 1
    if times != 1:
        raise ValueError(f"this is {times} times in {change.module}, not once:\n{change.old}")
    module = ModuleType(change.module)
    exec(compile(source.replace(change.old, change.new, 1), found.origin, "exec"), module.__dict__)
    return module
