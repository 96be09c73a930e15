"""A session with a database, which holds one lock, waits for one, or is idle."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import SplitResult

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.core.failures import Refused
from interlock.core.options import Reader, number_in, read_options
from interlock.core.redaction import is_torn, place_of, reads_url
from interlock.drivers.urls import conninfo_of, options_in
from interlock.runtime.process import HOST, OwnedDescriptor, checked_pid, pid

MAX_SESSIONS = 32
SEQUENCE = "interlock_fence"
IDENTIFIER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*")
CONNECTION_DEFAULTS = {
    "connect_timeout": "5",
    "keepalives_idle": "15",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "20000",
}


def _sequence_in(name: str, text: str) -> str:
    if not IDENTIFIER.fullmatch(text):
        raise InvalidArgument(f"{name} must be a name, or schema.name, of letters, digits and _.")
    return text


OWN_OPTIONS: dict[str, Reader] = {"max_sessions": number_in, "sequence": _sequence_in}
"""interlock's own options; the others are passed to the client library."""


class Options(NamedTuple):
    """The options of a URL.

    Attributes:
        arguments: names and values for a connection of psycopg, or of PyMySQL.
        max_sessions: maximum number of sessions of this process, whether holding, waiting or idle.
        sequence: the name of the database sequence that issues the fences.
        mysql: True for MariaDB, False for PostgreSQL.
        torn: True if an error of the client library may repeat part of the password.
    """

    arguments: tuple[tuple[str, object], ...]
    max_sessions: int
    sequence: str
    mysql: bool = False
    password_may_leak: bool = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} sequence={self.sequence}>"  # without the password


@reads_url
def options_of(url: SplitResult) -> Options:
    """Read the URL.

    Raises:
        InvalidArgument: an option is unknown, out of range, or repeated.
    """
    mysql, given = not url.scheme.startswith("postgresql"), options_in(url)
    if mysql:
        from interlock.stores.mysql.options import CONNECTING, arguments_in  # which need PyMySQL

        ours = read_options(given, OWN_OPTIONS | CONNECTING, place_of(url))
        arguments = arguments_in(url, ours, IO_TIMEOUT)
    else:
        from psycopg.conninfo import conninfo_to_dict

        ours = read_options([each for each in given if each[0] in OWN_OPTIONS], OWN_OPTIONS, place_of(url))
        others = {**CONNECTION_DEFAULTS, "application_name": f"interlock {HOST}:{pid()}"[:63]}
        others |= {name: text for name, text in given if name not in OWN_OPTIONS}
        arguments = conninfo_to_dict(conninfo_of(url, others.items()))
    return Options(
        tuple(arguments.items()),
        ours.get("max_sessions", MAX_SESSIONS),
        ours.get("sequence", SEQUENCE),
        mysql,
        is_torn(url),
    )


IO_TIMEOUT = 5.0  # seconds to wait for a reply
KEPT_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 20_000}  # s, s, count, ms

never_collected: list[object] = []
"""Sessions that must not be collected, because libpq would close other files."""
Rows: TypeAlias = list[tuple[str | None, ...]]


def refusal(code: str, text: str) -> Refused:
    """Return the error to raise if the server refuses a statement.

    Args:
        code: the SQLSTATE of PostgreSQL, or the error number of MariaDB.
        text: the message of the server.
    """
    advice = ". Hold fewer locks, or raise max_locks_per_transaction." if code == "53200" else ""
    error = Refused(f"The database refused: {text}{advice}")
    error.code = code
    return error


class BaseSession(ABC):
    """A session; subclasses implement the protocol of a database.

    Args:
        options: the options of the URL.
        mutex: the mutex of the room.

    Attributes:
        words: the statements of the server.
        client: the connection of psycopg or PyMySQL, once it is connected.
        fd: the descriptor of its socket; -1 while it has none.
        pid: the server's id of the session, from the protocol.
        alive: False after its end; the server releases its lock when it notices.
        busy: True while a caller sends a request or waits for the reply.
        silent: True if a reply did not come in time, so that the server may not notice the end of the session.
        owes: True while a reply of PostgreSQL is pending, which the next caller must read first.
    """

    words: Mapping[str, str]
    client: Any

    def __init__(self, options: Options, mutex: AbstractContextManager[object]) -> None:
        self.options = options
        self.fd = -1
        self.file: OwnedDescriptor | None = None
        self.pid = 0
        self.alive = True
        self.busy = False
        self.silent = False
        self.owes = False
        self._mutex = mutex

    def begin(self) -> None:
        """Reserve the session for one request; `over` ends that.

        Raises:
            UnknownOutcome: the session has ended, or another caller uses it.
        """
        checked_pid()  # abandons the session in a child that was forked without Python's fork hooks
        self.see_that_it_is_ours()
        with self._mutex:
            if not self.alive or self.busy:
                raise UnknownOutcome("The session with the database has ended, or another client uses it.")
            self.busy = True

    def connected(self, fd: int) -> None:
        """Record the descriptor of the session's socket."""
        self.fd, self.file = fd, OwnedDescriptor(fd)

    def see_that_it_is_ours(self) -> None:
        """End the session if the program has closed its descriptor, without touching other files."""
        with self._mutex:
            if self.fd >= 0 and self.file is not None and not self.file.is_ours():
                self.alive, self.fd = False, -1
                never_collected.append(self)

    def over(self) -> None:
        """Release the session after a request, or close it if it has ended."""
        with self._mutex:
            self.busy = False
            if not self.alive:
                self.close()

    def end(self) -> None:
        """End the session from any thread; a caller that uses it gets an error, and closes it."""
        self.see_that_it_is_ours()
        with self._mutex:
            self.alive = False
            if not self.busy:
                self.close()
            elif self.file is not None:
                with suppress(OSError):  # the connection is closed already
                    self.file.shut_down()

    def abandon(self) -> None:
        """Close the socket in a forked child, without ending the parent's session."""
        self.alive = False
        if self.fd >= 0:
            with suppress(OSError):
                null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
                os.dup2(null, self.fd, inheritable=False)
                os.close(null)
        self.fd = -1

    def broken(self, error: object) -> UnknownOutcome:
        """Mark the session as ended; return the error to raise."""
        self.alive = False
        return UnknownOutcome(f"The session with the database has ended, and its locks are released: {error}")

    def text(self, word: str, key: int = 0, kind: str = "", pid: int = 0, ticket: str | None = "") -> str:
        """Return a statement of `words`.

        Args:
            word: its key in `words`.
            key: the lock.
            kind: "_shared" for a reader, "" otherwise.
            pid: another session, for a statement that names one.
            ticket: the place of a waiter, as the server returned it.
        """
        # Hexadecimal in lower case: MariaDB compares lock names without regard to case.
        name, sequence = f"interlock_{key & (1 << 64) - 1:016x}", self.options.sequence
        return self.words[word].format(
            key=key, name=name, kind=kind, sequence=sequence, pid=pid, ticket=ticket, line=key & 0x7FFFFFFF
        )

    def say(self, text: str) -> Rows:
        """Perform a statement during the set-up; blocks.  Raises like `perform`."""
        self.begin()
        return self.perform(text, IO_TIMEOUT)

    def make_sequence(self, start: object) -> None:
        """Create the sequence of the fences; blocks.

        Args:
            start: the first fence: the clock in microseconds.  A session that has leapt on a sequence which was
                dropped later does not leap on the new sequence.

        Raises:
            StoreError: the role lacks the right.
        """
        make = f"CREATE SEQUENCE IF NOT EXISTS {self.options.sequence} START WITH {start}"
        try:
            self.say(self.words["make"] + make)
        except Refused as error:
            raise StoreError(
                f"The sequence for the fences is missing and cannot be created ({error}). As an owner of the schema, "
                f"run {make}; {self.text('allow')}. If the search_path of this role is empty, give the schema by "
                "?sequence=schema.name."
            ) from error

    @abstractmethod
    def connect(self) -> None:
        """Connect, check the server's suitability, and set the session up; blocks.

        Raises:
            StoreError: the server is unreachable, its locks do not exclude all clients, or it refuses.
        """

    @abstractmethod
    def perform(self, text: str, seconds: float | None) -> Rows:
        """Perform a statement, and return the rows; blocks.

        Args:
            text: the statement; the caller has called `begin`.
            seconds: maximum wait for the reply; None for no limit.

        Raises:
            Refused: the server refuses.
            UnknownOutcome: the connection failed, or no reply came in time.
        """

    def close(self) -> None:
        """Close the connection; safe to repeat."""
        if self.fd >= 0:
            self.fd = -1  # the number may soon belong to another file
            self.client.close()

    @abstractmethod
    def has_ended(self) -> bool:
        """Return whether the server has ended the session, without waiting, while not `busy`."""
