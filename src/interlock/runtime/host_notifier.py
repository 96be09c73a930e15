"""Notification between processes of one host, by datagrams: on Unix sockets (Linux), or over loopback (Windows).

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
from typing import TypeAlias

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
LOOPBACK = "127.0.0.1"
SELF_TEST = 0.5  # seconds for a datagram to the own socket, unless loopback is blocked
HINTED_POLL_MICROS = 1_000_000  # microseconds between two polls of a waiter whose notifications may be blocked
_UCRED = struct.Struct("iII")
_SOMEBODY = 65534  # the user id of unknown users in a user namespace


class UnixDatagrams:
    """Datagrams on Unix sockets with abstract names; the kernel identifies the sender."""

    trustworthy = True

    def open(self) -> tuple[socket.socket, str]:
        """Return a new socket and its address.

        Raises:
            OSError: there is no name or no descriptor left.
        """
        channel = f"interlock-{secrets.token_hex(8)}"
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            receiver.bind(f"\0{channel}")
        except BaseException:
            receiver.close()
            raise
        return receiver, channel

    def send(self, channel: str, datagrams: Iterable[bytes]) -> None:
        """Send datagrams to an address; wait a limited time while the receiver is full.

        Raises:
            OSError: it can't be sent; ConnectionRefusedError if nobody listens.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
            speaking.settimeout(SENDING)
            speaking.connect(f"\0{channel}")  # so that `send` waits while the socket is full
            for each in datagrams:
                speaking.send(each)

    def receive(self, receiver: socket.socket) -> tuple[bytes, bool]:
        """Return the next datagram, and True if its sender could write its content into the store.

        Such senders are processes of this user, and root.
        """
        data, about, _, _ = receiver.recvmsg(MAX_DATAGRAM, socket.CMSG_SPACE(_UCRED.size))
        senders = {_UCRED.unpack(text)[1] for _, kind, text in about if kind == socket.SCM_CREDENTIALS}
        return data, senders in ({os.geteuid()}, {0}) and _SOMEBODY not in senders

    def end(self, receiver: socket.socket) -> None:
        """Let `receive` return an empty datagram in its thread."""
        receiver.shutdown(socket.SHUT_RD)


class LoopbackDatagrams:
    """Datagrams over the loopback interface; nothing identifies the sender, so they are only hints."""

    trustworthy = False

    def open(self) -> tuple[socket.socket, str]:
        """Return a new socket and its port.

        Raises:
            OSError: loopback is blocked.
        """
        receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            receiver.bind((LOOPBACK, 0))
            receiver.settimeout(SELF_TEST)
            self.end(receiver)
            receiver.recv(1)
            receiver.settimeout(None)
        except BaseException:
            receiver.close()
            raise
        return receiver, str(receiver.getsockname()[1])

    def send(self, channel: str, datagrams: Iterable[bytes]) -> None:
        """Send datagrams to a port.

        Raises:
            OSError: they can't be sent.
        """
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaking:
            for each in datagrams:
                speaking.sendto(each, (LOOPBACK, int(channel)))

    def receive(self, receiver: socket.socket) -> tuple[bytes, bool]:
        """Return the next datagram, and False."""
        while True:
            try:
                return receiver.recv(MAX_DATAGRAM), False
            except ConnectionResetError:  # on Windows: nobody listened where this socket has sent to
                continue

    def end(self, receiver: socket.socket) -> None:
        """Let `receive` return an empty datagram in its thread."""
        receiver.sendto(b"", receiver.getsockname())


Datagrams: TypeAlias = UnixDatagrams | LoopbackDatagrams


def _datagrams() -> Datagrams | None:
    """Return the datagrams that this system has."""
    if hasattr(socket, "AF_UNIX"):
        return UnixDatagrams() if hasattr(socket, "SO_PASSCRED") else None
    return LoopbackDatagrams()


class Neighbours(Notifier):
    """The socket for notifications from and to other processes of this host.

    Args:
        waiters: the waiters to notify.
        datagrams: how; None if this system has no way.

    Attributes:
        channel: the address of this process; "" while it does not listen.
        home: host and pid of this process.
    """

    def __init__(self, waiters: Waiters, datagrams: Datagrams | None) -> None:
        self.waiters = waiters
        self._datagrams = datagrams
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
        self._away = self._datagrams is None
        self.channel = ""
        self.home = f"{HOST} {pid()}"

    @property
    def trustworthy(self) -> bool:
        """True if notifications say who sent them, and are rarely lost."""
        return self._datagrams is None or self._datagrams.trustworthy

    @property
    def origin(self) -> Origin:
        """This process for others; it listens once one of its claims waits."""
        if not self.channel and self.waiters:
            self.listen()
        return Origin(self.home, self.channel)

    def listen(self) -> None:
        """Listen, unless it already does or cannot."""
        with self._opening:
            if self.channel or self._away or self._datagrams is None:
                return
            self._away = True  # a handler that runs now does not listen
            receiver: socket.socket | None = None
            try:
                receiver, channel = self._datagrams.open()
                # Some Pythons start a thread in a copy of the starting thread's context.
                threading.Thread(
                    target=Context().run,
                    args=(self._read, self._datagrams, receiver),
                    name="interlock-listens",
                    daemon=True,
                ).start()
            except (OSError, RuntimeError) as error:  # no name, no descriptor, no thread, no loopback
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
            if not self.trustworthy and not place.process_name.startswith(HOST + " "):
                continue  # the port is another machine's
            fence = place.fence if place.state == USING else 0
            by_channel.setdefault(place.channel, []).append(f"{place.id} {fence} {place.slot}")
        for channel, messages in by_channel.items():
            if channel and channel != self.channel:
                self.send(channel, messages)

    def send(self, channel: str, messages: Sequence[str]) -> None:
        """Send messages, each "id fence slot", to the address of another process."""
        if self._datagrams is None:
            return
        try:
            self._datagrams.send(
                channel,
                [
                    "\n".join(messages[start : start + MESSAGES_PER_DATAGRAM]).encode()
                    for start in range(0, len(messages), MESSAGES_PER_DATAGRAM)
                ],
            )
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
        if ending is not None and self._datagrams is not None:
            with suppress(OSError):  # the socket has ended
                self._datagrams.end(ending)  # its thread closes it

    def _read(self, datagrams: Datagrams, receiver: socket.socket) -> None:
        """Pass messages to waiters until the socket is shut down."""
        with receiver, suppress(OSError):
            while True:
                data, trusted = datagrams.receive(receiver)
                if not data and self._socket is not receiver:
                    break
                self._hear(data.decode(errors="replace"), trusted)
        with self._opening:
            if self._socket is receiver:
                self._socket, self.channel = None, ""

    def _hear(self, text: str, trusted: bool) -> None:
        """Notify waiters of a message; an untrusted message only makes the waiter poll."""
        for line in text.splitlines():
            if trusted:
                self.waiters.dispatch(line)
            else:
                self.waiters.notify(line.partition(" ")[0], 0)


neighbours = Neighbours(Waiters(), _datagrams())
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
        if neighbours.trustworthy:
            return step
        return step._replace(look_in=min(step.look_in or HINTED_POLL_MICROS, HINTED_POLL_MICROS))
    waited = max(0, clock.stamp - waiter.since) // GROWTH
    pause = min(
        max(longest, MICROS * len(before) // POLLS_PER_SECOND), max(SHORTEST_POLL_MICROS * len(before), waited)
    )
    jitter = secrets.randbelow(pause // 4)
    return step._replace(look_in=min(step.look_in or pause, pause) + jitter)
