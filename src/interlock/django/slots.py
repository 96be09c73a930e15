"""What stands for one connection of the store's own, from before it is opened until after it is closed."""

import math
from contextlib import suppress
from time import monotonic
from typing import Any

from interlock.django.wrappers import ANSWER, shut
from interlock.runtime.process import pid


class ConnectionSlot:
    """One of the connections that a process may have; `wrapper` is None until it is opened.

    An interrupt may lose one on its way; then it is collected, and counts no more.
    """

    __slots__ = ("__weakref__", "due", "generation", "name", "pid", "since", "thread", "wrapper")

    def __init__(self) -> None:
        self.wrapper: Any = None
        self.pid = pid()
        self.name = ""
        self.generation = 0
        self.since = 0.0
        self.thread = 0
        self.due = math.inf

    def begin(self) -> None:
        """Something is asked now; the answer must come in time."""
        self.due = monotonic() + ANSWER

    def close(self) -> None:
        """Close the connection, if there is one."""
        wrapper, self.wrapper = self.wrapper, None
        if wrapper is not None:
            shut(wrapper)

    def __del__(self) -> None:
        with suppress(Exception):  # the interpreter may be shutting down
            if self.pid == pid():
                self.close()
