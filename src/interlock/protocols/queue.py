"""The import path `interlock.protocols.queue`; the module is `interlock.core.queue`."""

from interlock.core.queue import *  # noqa: F403
