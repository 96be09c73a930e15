"""One session with a database: it has one lock, waits for one, or is free; how it ends, and which caller uses it."""

import os
import re
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import SplitResult, parse_qsl

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.core.options import Reader, number_in, read_options
from interlock.core.redaction import is_torn, place_of, read, whole
from interlock.remote.urls import check, conninfo_of, options_in, port_of
from interlock.runtime.process import HOST, Descriptor, checked_pid, pid

MAX_SESSIONS = 32
SEQUENCE = "interlock_fence"
IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


def _sequence_in(name: str, text: str) -> str:
    if not IDENTIFIER.fullmatch(text):
        raise InvalidArgument(f"{name} is a name, or schema.name, of letters, digits and _")
    return text


OURS: dict[str, Reader] = {"max_sessions": number_in, "sequence": _sequence_in}
"""Others are for the library that connects."""


class Options(NamedTuple):
    """What the URL says.

    Attributes:
        conninfo: how libpq connects.
        max_sessions: how many sessions this process may have, each with a lock, waiting for one, or idle.
        sequence: what fences are taken from.
        mysql: True for MariaDB, False for PostgreSQL.
        torn: True if what a library says of the URL may repeat a part of the password.
    """

    conninfo: str
    max_sessions: int
    sequence: str
    mysql: bool = False
    torn: bool = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sequence={self.sequence}>"  # without the password


def options_of(url: SplitResult) -> Options:
    """Read the URL.

    Raises:
        InvalidArgument: an option is out of its range, or stands there twice.
    """
    return read(url, _options_of)


def _options_of(url: SplitResult) -> Options:
    postgresql = url.scheme.startswith("postgresql")
    given = options_in(url) if postgresql else parse_qsl(url.query, keep_blank_values=True)
    others = {name: text for name, text in given if postgresql and name not in OURS}
    ours = read_options([each for each in given if each[0] not in others], OURS, place_of(url))
    if url.fragment:
        raise InvalidArgument(f"{place_of(url)}: a # in a password is written %23")
    if postgresql:
        conninfo = conninfo_of(
            url, {**DEFAULTS, "application_name": f"interlock {HOST}:{pid()}"[:63], **others}.items()
        )
        with suppress(ImportError):  # which is told when a session is opened
            check(conninfo, url)
    else:
        port_of(url)  # which refuses what is none
        conninfo = whole(url._replace(query=""))
    return Options(
        conninfo, ours.get("max_sessions", MAX_SESSIONS), ours.get("sequence", SEQUENCE), not postgresql, is_torn(url)
    )


IO_TIMEOUT = 5.0  # seconds that the server may take for an answer
KEPT_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}  # ms the last

never_collected: list[Any] = []
"""Sessions of another process, or whose descriptors are other files: kept, since libpq would close those."""
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
        alive: False once it has ended; what it had is free, as soon as the server knows.
        busy: True while a caller talks.
        silent: True if an answer did not come in time, so that the server may not hear of its end.
    """

    def __init__(self, options: Options, mutex: AbstractContextManager[object]) -> None:
        self.options = options
        self.fd = -1
        self.file: Descriptor | None = None
        self.pid = self.reported_pid = 0
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
            UnknownOutcome: it has ended, or another caller talks.
        """
        checked_pid()  # in a child that was forked behind Python's back this ends it
        self.see_that_it_is_ours()
        with self._mutex:
            if not self.alive or self.busy:
                raise UnknownOutcome("the session with the database has ended, or another client uses it")
            self.busy = True

    def connected(self, fd: int) -> None:
        """Note the descriptor of its socket."""
        self.fd, self.file = fd, Descriptor(fd)

    def see_that_it_is_ours(self) -> None:
        """End it if the program has closed its descriptor, which may be another file by now: that is not touched."""
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
        """End it, from any thread; the caller that talks on it notices, and closes it."""
        self.see_that_it_is_ours()
        with self._mutex:
            self.alive = False
            if not self.busy:
                self.close()
            elif self.file is not None:
                with suppress(OSError):  # it has ended already
                    self.file.shut_down()

    def abandon(self) -> None:
        """In a forked child: let go of the socket without a word, which would end the session of the parent."""
        self.alive = False
        if self.fd >= 0:
            with suppress(OSError):
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(null, self.fd, inheritable=False)
                os.close(null)
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
        """Tell, without waiting, whether the server has ended it; asked only while no caller talks."""
        raise NotImplementedError
