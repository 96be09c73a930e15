"""interlock for Django: locks in the database or elsewhere, guarded models, fenced writes; forms, admin, REST.

`locks` and `alocks` are the locks that INTERLOCK in the settings describes, `occupy` locks rows, `occupies`
decorates. They are loaded when they are first used, because this package is imported before Django's apps are.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from interlock.runtime.loading import loading

if TYPE_CHECKING:
    from interlock.django.configured import alocks, locks
    from interlock.django.row_lock import occupies, occupy

__all__ = ["alocks", "locks", "occupies", "occupy"]

_WHERE = {"locks": "configured", "alocks": "configured", "occupies": "row_lock", "occupy": "row_lock"}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with loading:  # a fork waits until no thread is importing
        found = globals()[name] = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    return found
