"""The import path `interlock.process`; the module is `interlock.runtime.process`."""

from interlock.runtime.process import *  # noqa: F403
