"""The code that is checked: what the package uses, or a copy of it with one change in its text."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import NamedTuple

from interlock.core import acquire as claiming
from interlock.core import line
from interlock.stores.files import plan
from proof.files.client import Acquire


class Production(NamedTuple):
    """The decisions of a step, and the protocol of a caller."""

    plan: ModuleType
    acquire: Acquire


PRODUCTION = Production(plan, claiming.acquire)
MODULES = {"line": line, "plan": plan, "claiming": claiming}


def changed(module: str, old: str, new: str) -> Production:
    """Return the production code with one change in the text of one module.

    Args:
        module: line, plan or claiming.
        old: a piece of its text, which must occur exactly once.
        new: what to put in its place.

    Raises:
        ValueError: the piece does not occur exactly once.
    """
    text = inspect.getsource(MODULES[module])
    if text.count(old) != 1:
        raise ValueError(f"{old!r} occurs {text.count(old)} times in {MODULES[module].__name__}, not once")
    fresh = _executed(MODULES[module], text.replace(old, new))
    if module == "claiming":
        return Production(plan, fresh.acquire)
    if module == "plan":
        return Production(fresh, claiming.acquire)
    # The functions of the line are imported by the plan, which therefore needs a copy too.
    copy = _executed(plan, inspect.getsource(plan))
    for name in ("promotable", "has_room", "watched"):
        setattr(copy, name, getattr(fresh, name))
    return Production(copy, claiming.acquire)


def _executed(original: ModuleType, text: str) -> ModuleType:
    module = ModuleType(original.__name__)
    exec(compile(text, original.__file__ or module.__name__, "exec"), module.__dict__)
    return module
