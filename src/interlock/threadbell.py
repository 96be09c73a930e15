"""What threads of one process wait on."""

import threading
from typing import Any


class ThreadBell:
    """A wake-up for one thread: an event that carries a message."""

    __slots__ = ("_lock", "_message")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._message: Any = None

    def tell(self, message: Any = None) -> None:
        """Wake the waiter, from any thread; a message is kept until it is read."""
        if message is not None:
            self._message = message
        try:
            self._lock.release()
        except RuntimeError:
            pass  # it rang already

    def wait(self, seconds: float) -> Any:
        """Block until told or until `seconds` have passed; return the message or None."""
        self._lock.acquire(timeout=seconds)
        message, self._message = self._message, None
        return message

    def wake(self) -> None:
        """Let the waiter look again, from any thread."""
        self.tell()

    def close(self) -> None:
        """Nothing to give back."""
