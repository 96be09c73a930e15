"""One session with a database, which has one lock, waits for one, or is free; how it ends, and who talks on it."""

import os
import socket
from typing import Any, TypeAlias

from interlock.core.errors import StoreError, UnknownOutcome
from interlock.runtime.process import Descriptor, checked_pid
from interlock.stores.advisory.options import Options

IO_TIMEOUT = 5.0  # seconds that the server may take for an answer
KEPT_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}  # ms the last

never_collected: list[Any] = []
"""Sessions that are another process's, or whose descriptors are other files: the library would end those."""
Rows: TypeAlias = list[tuple[str | None, ...]]


class Refusal(Exception):
    """The server refused a statement.

    Attributes:
        state: its SQLSTATE, or the number that MariaDB gives.
    """

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


def refused(error: Refusal) -> StoreError:
    """Return what is raised for a refusal of the server."""
    if error.state == "53200":
        return StoreError(
            f"the lock table of the server is full ({error}): hold fewer locks, or raise max_locks_per_transaction"
        )
    return StoreError(f"the database refuses: {error}")


class BaseSession:
    """A session; how to talk with a database is in its subclasses.

    Args:
        options: what the URL says.
        mutex: of the room.

    Attributes:
        fd: the descriptor of its socket; -1 while there is none.
        pid: what the server calls it; reported_pid: what it is called by whatever the connection leads to.
        key: of the lock for which it was used last.
        alive: False once it has ended; what it had is free, as soon as the server knows.
        busy: True while somebody talks.
        silent: True if an answer did not come in time, so that the server may not hear of its end.
    """

    def __init__(self, options: Options, mutex: Any) -> None:
        self.options = options
        self.fd = -1
        self.file: Descriptor | None = None
        self.pid = self.reported_pid = 0
        self.key = 0
        self.alive = True
        self.busy = False
        self.silent = False
        self._mutex = mutex

    def another(self) -> Any:
        """Return a new session with the same server."""
        return type(self)(self.options, self._mutex)

    def begin(self) -> None:
        """Begin to talk.

        Raises:
            UnknownOutcome: it has ended, or somebody else talks.
        """
        checked_pid()  # in a child that was forked behind Python's back this ends it
        self.see_that_it_is_ours()
        with self._mutex:
            if not self.alive or self.busy:
                raise UnknownOutcome("the session with the database has ended, or somebody else talks on it")
            self.busy = True

    def connected(self, fd: int) -> None:
        """Note the descriptor of its socket."""
        self.fd, self.file = fd, Descriptor(fd)

    def see_that_it_is_ours(self) -> None:
        """End it if the program has closed its descriptor, which may be another file by now: nobody touches that."""
        with self._mutex:
            if self.fd >= 0 and self.file is not None and not self.file.is_ours():
                self.alive, self.fd = False, -1
                never_collected.append(self)

    def over(self) -> None:
        """Talk no more."""
        with self._mutex:
            self.busy = False
            if not self.alive:
                self.close()

    def end(self) -> None:
        """End it, from any thread; who talks on it finds that out, and closes it."""
        self.see_that_it_is_ours()
        with self._mutex:
            self.alive = False
            if not self.busy:
                self.close()
            elif self.fd >= 0:
                connection = socket.socket(fileno=self.fd)
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended already
                finally:
                    connection.detach()

    def abandon(self) -> None:
        """In a forked child: let go of the socket without a word, which would end the session of the parent."""
        self.alive = False
        if self.fd >= 0:
            try:
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(null, self.fd, inheritable=False)
                os.close(null)
            except OSError:
                pass
        self.fd = -1

    def broken(self, error: Exception | None) -> UnknownOutcome:
        """Note that the connection has failed; return what is raised for that."""
        self.alive = False
        return UnknownOutcome(f"the session with the database has ended, and all that it held is free: {error}")

    def connect(self) -> None:
        """Connect to the server; blocks.

        Raises:
            StoreError: it can't be reached.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        raise NotImplementedError

    def has_ended(self) -> bool:
        """Tell, without waiting, whether the server has ended it; asked only while nobody talks."""
        raise NotImplementedError
