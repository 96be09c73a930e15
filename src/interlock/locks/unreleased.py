"""The warning about a lock that was acquired and forgotten: its grant is collected while it is held.

The callback of a weak reference gives it, and not `__del__`, which would run at the end of each grant: the
interpreter swallows a Ctrl-C that comes in such code.
"""

import os
import sys
import warnings
from typing import Any

from interlock.core.claims import SEPARATOR
from interlock.runtime.process import in_forked_child

LIBRARY = os.path.dirname(__file__) + os.sep
DEV = sys.flags.dev_mode
kept: dict[str, Any] = {}
"""By id, the grants that a `with` block will release: they live also if it is left and its lock object is gone."""


def caller() -> str:
    """Return where in the program this library was called; slow, so asked for in development mode only."""
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(LIBRARY):
        frame = frame.f_back
    return f" (acquired at {frame.f_code.co_filename}:{frame.f_lineno})"


def warn(key: str, where: str, source: Any) -> None:
    """Warn that the grant of `key` was collected while it was held.

    Args:
        key: of the lock.
        where: as from `caller`.
        source: what was made when the lock was acquired: tracemalloc knows where.
    """
    if not sys.is_finalizing():
        warnings.warn(
            f"the lock {key.partition(SEPARATOR)[2]!r} was never released: its grant and its lock object were "
            f"collected while it was held, so its lease is renewed no more and ends; use `with`, or keep the "
            f"grant and call release(){where}",
            ResourceWarning,
            stacklevel=3,
            source=source,
        )


in_forked_child(kept.clear)
