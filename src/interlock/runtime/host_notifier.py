"""Notification between processes of one host, by datagrams on Unix sockets (Linux).

A process sends a datagram when the store has answered the step that promoted a waiter; it contains the id, the fence
and the slot.  Nothing depends on the datagram: if it is lost, the waiter finds its promotion by polling.
"""

import errno
import os
import secrets
import socket
import struct
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import Context

from interlock.core.claims import MICROS, PENDING, USING
from interlock.core.line import Line, Origin, QueuedClaim, StepResult, StoreTime
from interlock.core.queue import POLLS_PER_SECOND
from interlock.runtime import log
from interlock.runtime.process import HOST, in_forked_child, pid
from interlock.runtime.waiters import Notifier, Waiters

MAX_DATAGRAM = 32768  # bytes of a datagram
MESSAGES_PER_DATAGRAM = 250  # messages in one datagram
SENDING = 0.05  # seconds to wait for a process that does not read
PASSING = (errno.EADDRINUSE, errno.EMFILE, errno.ENFILE)  # the name is being closed; all descriptors are in use
SHORTEST_POLL_MICROS, LONGEST_POLL_MICROS = (
    20_000,
    500_000,
)  # microseconds between two polls of a waiter without notification
GROWTH = 8  # it polls again after this part of its waiting time
_HEARS = hasattr(socket, "SO_PASSCRED")
_UCRED = struct.Struct("iII")
_SOMEBODY = 65534  # the user id of unknown users in a user namespace


class Neighbours(Notifier):
    """The socket for notifications from and to other processes of this host.

    Args:
        waiters: the waiters to notify.

    Attributes:
        channel: the address of this process; "" while it does not listen.
        home: host and pid of this process.
    """

    def __init__(self, waiters: Waiters) -> None:
        self.waiters = waiters
        self._socket: socket.socket | None = None
        self._start_afresh()
        in_forked_child(self._start_afresh)

    def _start_afresh(self) -> None:
        """Reset it in a forked child, which must not receive the parent's messages."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._opening = threading.RLock()  # re-entrant: a handler of signals may need it
        self._users = 0
        self._away = not _HEARS
        self.channel = ""
        self.home = f"{HOST} {pid()}"

    @property
    def origin(self) -> Origin:
        """This process for others; it listens once one of its claims waits."""
        if not self.channel and self.waiters:
            self.listen()
        return Origin(self.home, self.channel)

    def listen(self) -> None:
        """Listen, unless it already does or cannot."""
        with self._opening:
            if self.channel or self._away:
                return
            self._away = True  # a handler that runs now does not listen
            receiver: socket.socket | None = None
            channel = f"interlock-{secrets.token_hex(8)}"
            try:
                receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                receiver.bind(f"\0{channel}")
                # Some Pythons start a thread in a copy of the starting thread's context.
                threading.Thread(
                    target=Context().run, args=(self._read, receiver), name="interlock-listens", daemon=True
                ).start()
            except (OSError, RuntimeError) as error:  # no name, no descriptor, no thread
                if receiver is not None:
                    receiver.close()
                self._away = getattr(error, "errno", 0) not in PASSING
                if self._away:
                    log.warn("Could not listen for notifications; waiters will poll: %s", error)
                return
            self._socket, self._away = receiver, False
            self.channel = channel

    def notify_others(self, promoted: Sequence[QueuedClaim]) -> None:
        """Notify waiters in other processes: holders of their fence, others to poll."""
        by_channel: dict[str, list[str]] = {}
        for place in promoted:
            fence = place.fence if place.state == USING else 0
            by_channel.setdefault(place.channel, []).append(f"{place.id} {fence} {place.slot}")
        for channel, messages in by_channel.items():
            if channel and channel != self.channel and _HEARS:
                self.send(channel, messages)

    def send(self, channel: str, messages: Sequence[str]) -> None:
        """Send messages, each "id fence slot", to the address of another process."""
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
                speaking.settimeout(SENDING)
                speaking.connect(f"\0{channel}")  # so that `send` waits while the socket is full
                for start in range(0, len(messages), MESSAGES_PER_DATAGRAM):
                    speaking.send("\n".join(messages[start : start + MESSAGES_PER_DATAGRAM]).encode())
        except ConnectionRefusedError:
            pass  # its process has ended, or is not on this host
        except OSError as error:
            log.warn("Could not notify the next waiter, which will poll: %s", error)

    def join(self) -> None:
        """Count one more user of the socket."""
        with self._opening:
            self._users += 1

    def leave(self) -> None:
        """Drop one user; without users, stop listening until there is a waiter again."""
        with self._opening:
            self._users -= 1
            if self._users > 0:
                return
            ending, self._socket, self.channel = self._socket, None, ""
        if ending is not None:
            with suppress(OSError):  # the socket has ended
                ending.shutdown(socket.SHUT_RD)  # its thread closes it

    def _read(self, receiver: socket.socket) -> None:
        """Pass messages to waiters until the socket is shut down."""
        with receiver, suppress(OSError):
            while True:
                data, about, _, _ = receiver.recvmsg(MAX_DATAGRAM, socket.CMSG_SPACE(_UCRED.size))
                if not data and self._socket is not receiver:
                    break
                self._hear(data.decode(errors="replace"), about)
        with self._opening:
            if self._socket is receiver:
                self._socket, self.channel = None, ""

    def _hear(self, text: str, about: Iterable[tuple[int, int, bytes]]) -> None:
        """Notify waiters of a message.

        A fence is accepted only from senders that could write it into the store: processes of this user, and root, as
        the kernel reports.  A message from any other sender only makes the waiter poll.
        """
        senders = {_UCRED.unpack(data)[1] for _, kind, data in about if kind == socket.SCM_CREDENTIALS}
        believed = senders in ({os.geteuid()}, {0}) and _SOMEBODY not in senders
        for line in text.splitlines():
            if believed:
                self.waiters.dispatch(line)
            else:
                self.waiters.notify(line.partition(" ")[0], 0)


neighbours = Neighbours(Waiters())
"""The notifier of all stores of this process without their own notification."""


def sooner(step: StepResult, line: Line, clock: StoreTime, longest: int = LONGEST_POLL_MICROS) -> StepResult:
    """Let a waiter poll soon if no notification can reach it.

    Args:
        step: the step whose answer is the waiter.
        line: the line after the step.
        clock: the time of the step.
        longest: maximum microseconds between two polls; more in a long line.
    """
    waiter = step.answer
    if not isinstance(waiter, QueuedClaim) or waiter.state != PENDING:
        return step
    host = HOST + " "
    before = [place for place in line.places if place.fence < waiter.fence]
    if waiter.channel and all(place.process_name.startswith(host) for place in before):
        return step
    waited = max(0, clock.stamp - waiter.since) // GROWTH
    pause = min(
        max(longest, MICROS * len(before) // POLLS_PER_SECOND), max(SHORTEST_POLL_MICROS * len(before), waited)
    )
    jitter = secrets.randbelow(pause // 4)
    return step._replace(look_in=min(step.look_in or pause, pause) + jitter)
