"""The import path `interlock.threadbell`; the class is `interlock.runtime.sync.ThreadEvent`."""

from interlock.runtime.sync import ThreadEvent as ThreadBell

__all__ = ["ThreadBell"]
