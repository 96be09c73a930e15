"""The sessions of one process on one server: one that never waits, and those on which somebody waits."""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from time import monotonic
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.advisory.options import Options
from interlock.stores.advisory.places import AdvisoryClaims
from interlock.stores.advisory.session import AdvisorySession

MOST_GIVEN_UP = 64

Open = Callable[[Options], AdvisorySession]


def opener(options: Options) -> Open:
    """Return what opens a session.

    It is imported now, and not by the first acquire: a process that forks while another thread imports has a child
    that waits for ever for that import.

    Raises:
        StoreError: its client library is missing.
    """
    try:
        if options.mysql:
            from interlock.stores.advisory.mysqlopening import open_mysql  # one needs PyMySQL, the other psycopg

            return open_mysql
        from interlock.stores.advisory.opening import open_session

        return open_session
    except ImportError as error:
        raise StoreError(f"the client library of the database is missing, install it: {error}") from error


class AdvisorySessions:
    """The open sessions.

    Args:
        options: what the URL says.
        open: opens one.
        mutex: of the claims, which guards these too.

    Attributes:
        main: the one that never waits; None before it is opened.
        apart: those on which somebody waits or has waited.
        ended: those that somebody talked to when they ended, and that are not closed yet.
        given_up: pid and `born` of those that are to be ended on the server, too.
    """

    def __init__(self, options: Options, open: Open, mutex: "threading.RLock") -> None:
        self._options = options
        self._open = open
        self._mutex = mutex
        self._all: list[AdvisorySession] = []
        self._opening = threading.Lock()
        self._closed = False
        self._failed: tuple[float, StoreError | None] = (0.0, None)  # when, and why, none could be opened
        self.main: AdvisorySession | None = None
        self.apart: list[AdvisorySession] = []
        self.ended: list[AdvisorySession] = []
        self.given_up: deque[tuple[int, Any]] = deque(maxlen=MOST_GIVEN_UP)

    def __iter__(self) -> Iterator[AdvisorySession]:
        return iter(list(self._all))

    def open_main(self) -> AdvisorySession:
        """Return the session that never waits; it is opened where that is needed.

        Raises:
            StoreError: it can't be.
        """
        began = monotonic()
        with self._opening:
            session = self.main
            if session is None or not session.alive:
                failed_at, why = self._failed
                if failed_at > began:  # while this one waited: it does not wait as long again
                    raise StoreError(str(why)) from why
                try:
                    session = self._open(self._options)
                except StoreError as error:
                    self._failed = monotonic(), error
                    raise
                with self._mutex:
                    self._note(session)
                    self.main = session
            return session

    def open_apart(self) -> AdvisorySession:
        """Return a new one to wait on, which is not noted yet.

        Raises:
            StoreError: it can't be opened.
        """
        return self._open(self._options)

    def add_apart(self, session: AdvisorySession) -> None:
        """Note one to wait on.

        Raises:
            StoreError: all were ended meanwhile.
        """
        with self._mutex:
            self._note(session)
            self.apart.append(session)

    def _note(self, session: AdvisorySession) -> None:
        """Note one that was opened, which can take as long as the server likes.

        Raises:
            StoreError: all were ended meanwhile, and so is this one.
        """
        with self._mutex:
            if not self._closed:
                self._all.append(session)
                return
        session.fail()
        raise StoreError("this connection was closed: connect again")

    def idle(self, used: Collection[AdvisorySession | None]) -> AdvisorySession | None:
        """Return a session to wait on that nobody uses; looked for, not kept, as an interrupt could lose it."""
        return next((each for each in self.apart if is_idle(each) and each not in used), None)

    def take_idle(self, used: Collection[AdvisorySession | None]) -> list[AdvisorySession]:
        """Forget those to wait on that nobody uses, and return them."""
        taken = []
        while (session := self.idle(used)) is not None:
            self.remove(session)
            taken.append(session)
        return taken

    def may_open(self, places: AdvisoryClaims) -> bool:
        """Tell whether there may be one more to wait on; one for a claim that was interrupted does not count."""
        return len(self.apart) + sum(each.opens for each in places) < self._options.max_waiting

    def remove(self, session: AdvisorySession) -> None:
        """Forget one that has ended."""
        with self._mutex:
            for where in (self._all, self.apart):
                if session in where:
                    where.remove(session)
            if session is self.main:
                self.main = None

    def give_up(self, session: AdvisorySession, silent: bool) -> None:
        """Forget one that has ended; the server may not know of it if it was silent."""
        with self._mutex:
            if (
                silent and session in self._all and session.pid == session.reported_pid
            ):  # else a pooler may have lent it
                self.given_up.append((session.pid, session.born))
            self.remove(session)

    def next_given_up(self) -> tuple[int, Any] | None:
        """Take the next that is to be ended on the server."""
        try:
            return self.given_up.popleft()
        except IndexError:
            return None

    def open(self) -> list[AdvisorySession]:
        """Return all that may have an open connection."""
        return [*self._all, *self.ended]

    def close(self, session: AdvisorySession) -> None:
        """Close one that has ended; if somebody talks to it just now, `close_ended` does it."""
        if session.fail():
            return
        with self._mutex:
            if not self._closed:
                self.ended.append(session)
                return
        session.fail(wait_for_others=False)  # nobody comes after this

    def close_ended(self) -> None:
        """Close those that have ended, and that nobody talks to any more."""
        for session in list(self.ended):
            if session.fail():
                self.ended.remove(session)

    def end(self) -> None:
        """End them all; the server frees what they have."""
        with self._mutex:
            self._closed = True
            sessions = self.open()
            self._all.clear()
        for session in sessions:
            session.fail(wait_for_others=False)


def is_idle(session: AdvisorySession) -> bool:
    """Tell whether a session has no lock and waits for none, and nothing of before is to come."""
    return session.alive and session.waits_for is None and not session.counts and not session.unsettled
