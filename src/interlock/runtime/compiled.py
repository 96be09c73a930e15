"""The compiled parts of stores, where this installation has them."""

import os
from importlib import import_module
from typing import Any


def compiled(name: str) -> Any:
    """Return a compiled module; None where no compiler was at hand, or INTERLOCK_PURE is set in the environment.

    Args:
        name: its full name.
    """
    if os.environ.get("INTERLOCK_PURE"):
        return None
    try:
        return import_module(name)
    except ImportError:
        return None
