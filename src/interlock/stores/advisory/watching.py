"""The thread that watches sessions: an answer for which one waits, the end of a session, the end of a lease."""

import math
import select
import threading
from time import monotonic
from typing import Any, Protocol

from interlock.core.errors import LockError
from interlock.runtime import log
from interlock.runtime.polling import WakePipe
from interlock.stores.advisory.places import AdvisoryClaim, AdvisoryClaims
from interlock.stores.advisory.session import AdvisorySession
from interlock.stores.advisory.sessions import AdvisorySessions

LONGEST = 1.0  # seconds
GONE = select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Watched(Protocol):
    """What the watcher asks of a room, which makes it; `BaseRoom` has it."""

    sessions: AdvisorySessions
    places: AdvisoryClaims
    mutex: Any

    def arrived(self, session: AdvisorySession) -> None:
        """Take the answer for which a session has waited, if it is there."""

    def lost(self, session: AdvisorySession) -> None:
        """Let go of a session that has ended."""

    def end(self, place: AdvisoryClaim) -> bool:
        """Take a claim out, and give back what it has; False if somebody else does so."""

    def end_on_server(self) -> None:
        """End on the server the sessions that were given up."""

    def reconcile(self, session: AdvisorySession) -> None:
        """Ask the server what it has of a session that may differ from what is known."""


class Watcher:
    """The thread; it starts with the first session.

    Args:
        room: whose sessions are watched.
    """

    def __init__(self, room: Watched) -> None:
        self._room = room
        self._thread: threading.Thread | None = None
        self._pipe: WakePipe | None = WakePipe()
        self._wakes = 0.0
        self._stopped = False
        self._mutex = threading.Lock()

    def mind(self, moment: float) -> None:
        """See that it looks at leases at a moment, at the latest."""
        if moment < self._wakes or self._thread is None:
            self.wake()

    def wake(self) -> bool:
        """Let it look at everything again; False if no thread can be started for it."""
        with self._mutex:
            if self._stopped:
                return True
            if self._thread is None:
                thread = threading.Thread(target=self._watch, name="interlock-advisory", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:
                    log.warn("no thread to watch advisory locks with: %s", error)
                    return False
                self._thread = thread
            self._wake()
            return True

    def stop(self) -> None:
        """End the thread."""
        with self._mutex:
            self._stopped = True  # before it wakes, else it would sleep once more
            self._wake()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(LONGEST * 2)
        self.abandon()

    def _wake(self) -> None:
        if self._pipe is not None:
            self._pipe.wake()

    def abandon(self, forked: bool = False) -> None:
        """Close what is open; a forked child has no such thread, and nobody there gives the mutex back."""
        if forked:
            self._mutex = threading.Lock()
        with self._mutex:
            self._stopped = True
            pipe, self._pipe = self._pipe, None
            if pipe is not None:
                pipe.close()

    def _watch(self) -> None:
        while not self._stopped:
            try:
                self._look()
            except LockError as error:
                log.warn("a lock could not be given back: %s", error)
            except Exception:
                if not self._stopped:
                    log.exception("the watcher of advisory locks failed, and goes on")

    def _look(self) -> None:
        room, pipe = self._room, self._pipe
        if pipe is None:
            return  # it was stopped
        self._wakes = math.inf  # what comes from now on may not be seen by this look
        for session in [each for each in room.sessions if not each.alive]:
            room.lost(session)  # a call on it has found that it has ended
        with room.mutex:
            found = {each.socket: each for each in room.sessions if each.alive}
            ends = min((each.until for each in room.places), default=monotonic() + LONGEST)
        sessions = {socket: each for socket, each in found.items() if socket >= 0}  # of some closed just now
        poll = select.poll()
        poll.register(pipe.fileno(), select.POLLIN)
        for socket, session in sessions.items():
            poll.register(socket, GONE | (select.POLLIN if session.waits_for is not None else 0))
        self._wakes = min(monotonic() + LONGEST, ends)
        ready = poll.poll(max(0.0, self._wakes - monotonic()) * 1000 + 1)
        for socket, events in ready:
            if socket == pipe.fileno():
                pipe.drain()
            else:
                self._heard(sessions[socket], events)
        self._end_leases()
        room.sessions.close_ended()
        room.end_on_server()
        for session in sessions.values():
            if session.waits_for is None and (session.unsettled or session.counts):
                room.reconcile(session)

    def _heard(self, session: AdvisorySession, events: int) -> None:
        if events & select.POLLIN and session.waits_for is not None:
            self._room.arrived(session)
        elif events & GONE:
            self._room.lost(session)

    def _end_leases(self) -> None:
        now = monotonic()
        for place in [each for each in self._room.places if each.until <= now]:
            if place.state != "trying":
                self._room.end(place)
                place.doubt(place.claim.id)
