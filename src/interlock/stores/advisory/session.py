"""One session with a database, which carries locks or waits for one.

A session takes each lock at most once: what it has it would get again at once, past everybody who waits, and would
have to give back as often.
"""

import os
import threading
from time import monotonic
from typing import Any, Literal

from interlock.core.errors import StoreError, UnknownOutcome

IO_TIMEOUT = 5.0  # seconds that the server may take for an answer


Standing = Literal["waits", "holds", "gone", "unknown"]


class Refusal(Exception):
    """The server refused a statement.

    Attributes:
        state: its SQLSTATE.
    """

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


class AdvisorySession:
    """A session; what is particular to a database is in its subclasses.

    Attributes:
        pid: what the server calls it.
        reported_pid: what it is called by whatever the connection leads to.
        born: when it was opened, or its server started: after a restart another session may have its pid.
        socket: its file descriptor.
        mutex: held by whoever talks.
        waits_for: the key that it waits for; None if it waits for none.
        waiter: for whom it waits, or has waited last.
        waits_since: when that was asked for.
        alive: False once the connection has failed: its locks are free.
        counts: how many here have each lock, by key and shared; the server is asked for the first one only.
    """

    pid: int
    reported_pid: int
    born: Any = 0
    socket: int

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.waits_for: tuple[int, bool] | None = None
        self.waiter: Any = None
        self.waits_since = 0.0
        self.alive = True
        self.counts: dict[tuple[int, bool], int] = {}
        self._suspect: tuple[int, bool] | None = None
        self._begun = False  # a wait is being asked for

    # -- locks ------------------------------------------------------------------------------------------

    def attempt(self, key: int, shared: bool) -> int | None:
        """Take the lock if it is free; return the fence, or None.

        Raises:
            StoreError: the server can't be asked, or refuses; nothing is held.
        """
        with self.mutex:
            self.settle()
            if self.counts.get((key, False)) or (not shared and self.counts.get((key, True))):
                return None
            try:
                if self.counts.get((key, True)):
                    got = self._join(key)
                else:
                    self._suspect = key, shared
                    got = self._try(key, shared)
                    self._suspect = None if got is None else self._suspect
            except Refusal as error:
                self.settle()  # it may have been granted before the error
                raise refused(error) from error
            if got is None:
                return None
            self.counts[key, shared] = self.counts.get((key, shared), 0) + 1
            self._suspect = None
            return int(got)

    def give_back(self, key: int, shared: bool, left: int) -> None:
        """Give the lock back, unless some in this process still have it.

        Args:
            left: how many have it.

        Raises:
            StoreError: the server can't be asked.
        """
        with self.mutex:
            if not self.counts.get((key, shared)):
                return
            if left:
                self.counts[key, shared] = left
                return
            self.settle()
            self._suspect = key, shared
            self.counts.pop((key, shared), None)
            self.settle()

    def settle(self) -> None:
        """Take the answer that came too late for whoever asked, and give back what nobody knows to have.

        Raises:
            StoreError: the server can't be asked.
        """
        with self.mutex:
            if not self.alive:
                raise UnknownOutcome("the session with the database has ended")
            if self.waits_for is not None:
                return
            self._drain()
            if self._suspect is None:
                return
            key, shared = self._suspect
            if not self.counts.get((key, shared)):
                try:
                    self._unlock(key, shared)
                except Refusal as error:
                    self.fail()
                    raise refused(error) from error
            self._suspect = None

    @property
    def overdue(self) -> float:
        """For how many seconds an answer has been waited for, other than that of a waiter for a lock."""
        return 0.0

    @property
    def unsettled(self) -> bool:
        """True if an answer was not waited for, or an interrupt came."""
        return self._owes() or self._suspect is not None or self.left

    @property
    def left(self) -> bool:
        """True if a call was interrupted while it asked for a wait: the next question would get that answer."""
        return self._begun and self.waits_for is None

    def _try(self, key: int, shared: bool) -> str | None:
        """Ask the server for the lock; return the fence if it was free."""
        raise NotImplementedError

    def _join(self, key: int) -> str | None:
        """Return a fence for one more reader, unless a writer waits."""
        raise NotImplementedError

    def _unlock(self, key: int, shared: bool) -> None:
        """Give the lock back to the server."""
        raise NotImplementedError

    def _drain(self) -> None:
        """Take the answer that nobody waited for."""
        raise NotImplementedError

    def _owes(self) -> bool:
        """Tell whether there is such an answer."""
        raise NotImplementedError

    # -- waiting ----------------------------------------------------------------------------------------

    def begin(self, key: int, shared: bool) -> None:
        """Ask for the lock, and do not wait for the answer: `collect` it when the socket can be read.

        Raises:
            StoreError: the connection failed.
        """
        raise NotImplementedError

    def collect(self, seconds: float = 0.0) -> int | None:
        """Return the fence if the lock has been granted, None if the answer is not there.

        Args:
            seconds: to wait for it.

        Raises:
            Refusal: the wait was broken off; nothing is held.
            StoreError: the connection failed.
        """
        with self.mutex:
            if self.waits_for is None or not self._arrives(monotonic() + seconds):
                return None
            key, shared = self.waits_for
            try:
                fence = self._fence(key)
            except Refusal:
                self._broken_off(key, shared)
                raise
            self.counts[key, shared] = 1
            self._begun = False
            self.waits_for = None
            return int(str(fence))

    def _arrives(self, deadline: float) -> bool:
        """Tell whether an answer is there, or comes before a moment of the monotonic clock."""
        raise NotImplementedError

    def _fence(self, key: int) -> str | None:
        """Return the fence from the answer to a wait; raise Refusal if it was broken off."""
        raise NotImplementedError

    def _broken_off(self, key: int, shared: bool) -> None:
        """Note that a wait has ended with an error; a lock that was granted before that is given back.

        Raises:
            StoreError: the server can't be asked, or what broke it off came once more; then the session has ended.
        """
        self._suspect = key, shared
        self._begun = False
        self.waits_for = None
        self.settle()

    def cancel(self, waiting: "AdvisorySession") -> None:
        """Break off what another session waits for."""
        raise NotImplementedError

    # -- the server -------------------------------------------------------------------------------------

    def ping(self) -> int:
        """Return what the server calls this session.

        Raises:
            StoreError: the server can't be asked.
        """
        raise NotImplementedError

    def rows(self, sql: str, *values: object) -> list[list[str | None]]:
        """Perform a statement, and return its rows.

        Raises:
            Refusal: the server refuses.
            StoreError: the connection failed.
        """
        raise NotImplementedError

    def look(self, key: int) -> list[list[str | None]]:
        """Return who has a lock or waits for it: process, whether granted, mode, application, since when."""
        raise NotImplementedError

    def standing(self, waiting: "AdvisorySession", key: int) -> Standing:
        """Return how the server sees another session that waits for a key: "gone" if it knows no such wait."""
        raise NotImplementedError

    def terminate(self, pid: int, born: Any) -> None:
        """End a session on the server that was given up here, and may not have heard of that."""
        raise NotImplementedError

    def about(self) -> tuple[str, str]:
        """Return the server's version, and how many locks it has room for."""
        raise NotImplementedError

    def dead_after(self) -> int:
        """Return how many seconds after its last sign of life the server ends a session; 0 if its system decides."""
        raise NotImplementedError

    # -- the end ----------------------------------------------------------------------------------------

    def fail(self, *, wait_for_others: bool = True) -> bool:
        """End it: the server frees what it has.

        Returns:
            False if somebody else talks to it just now, and `wait_for_others`: then it is to be ended once more.
        """
        self.alive = False
        if not self.mutex.acquire(blocking=False):
            if wait_for_others:
                return False  # to free what a client library reads crashes it
            self._close()
            return True
        try:
            self._close()
        finally:
            self.mutex.release()
        return True

    def _close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    def abandon(self) -> None:
        """In a forked child: close the socket without a word, which would end the session of the parent."""
        self.alive = False
        if self.socket < 0:
            return
        try:
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            os.dup2(null, self.socket, inheritable=False)
            os.close(null)
        except OSError:
            pass


def refused(error: Refusal) -> StoreError:
    """Return what is raised for a refusal of the server."""
    if error.state == "53200":
        return StoreError(
            f"the lock table of the server is full ({error}): hold fewer locks (?max_locks=), or raise "
            f"max_locks_per_transaction"
        )
    return StoreError(f"the database refuses: {error}")
