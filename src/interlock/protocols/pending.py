"""The import path `interlock.protocols.pending`; the module is `interlock.core.pending`."""

from interlock.core.pending import *  # noqa: F403
