"""The lock under which modules are loaded at their first use."""

import _thread
import os

loading = _thread.RLock()
"""A fork waits for it: otherwise a thread that imports a module leaves its lock held in the child."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=loading.acquire, after_in_parent=loading.release, after_in_child=loading.release)
