"""The compiled quick ways, if this installation has them.

They are missing where no compiler was at hand, and left out where INTERLOCK_PURE is set in the environment.
"""

import os
from types import ModuleType

native: ModuleType | None = None
if not os.environ.get("INTERLOCK_PURE"):
    try:
        from interlock.stores.files import _quick
    except ImportError:
        pass
    else:
        native = _quick
