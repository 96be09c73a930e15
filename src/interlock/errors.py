"""The import path `interlock.errors`; the module is `interlock.core.errors`."""

from interlock.core.errors import *  # noqa: F403
