"""The import path `interlock.claims`; the module is `interlock.core.claims`."""

from interlock.core.claims import *  # noqa: F403
