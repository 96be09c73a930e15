"""The import path `interlock.effects`; the module is `interlock.core.effects`."""

from interlock.core.effects import *  # noqa: F403
