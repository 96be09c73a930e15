"""How waiters of one host hear of their turn: a datagram to a Unix socket without a name in the file system.

It is sent when the store has answered the step that promoted them, and says what the store would: an id and a fence.
Nothing depends on it.  What is lost is found by looking: a claim that waits does so every few seconds where datagrams
tell of every promotion, and every few hundredths of one elsewhere: between hosts, or containers with own networks.
"""

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interlock.core.effects import Call, Op
from interlock.runtime import log
from interlock.runtime.sync import ThreadEvent
from interlock.runtime.waiters import WaiterRegistry
from interlock.stores.sql.queue import SqlQueue

if TYPE_CHECKING:
    from interlock.runtime.aio import TaskEvent

LONGEST = 32768  # bytes of a datagram
MANY = 256  # messages in one
SENDING = 0.05  # seconds to wait for a process that does not read
UNTOLD = 2  # promotions in a row that were not heard of; then nothing is
_UCRED = struct.Struct("iII")
_SOMEBODY = 65534  # stands for all users whom a user namespace does not know


class DatagramListener:
    """What hears that claims of this process were promoted, and tells others; for both colours."""

    def __init__(self) -> None:
        self._start_afresh()

    def reset(self) -> None:
        """In a forked child: hear nothing of what the parent is told."""
        if self._socket is not None:
            self._socket.close()
        self._start_afresh()

    def _start_afresh(self) -> None:
        self.live = False
        self._opening = threading.RLock()  # re-entrant: a signal handler may acquire or close meanwhile
        self._opens = False
        self._socket: socket.socket | None = None
        self._untold = 0
        self._closed = False

    def start(self, channel: str, waiters: WaiterRegistry) -> None:
        """As `Listener.start`."""
        self._channel = channel
        self._waiters = waiters

    def ask(self, _: Any) -> None:
        """Listen, unless that is done already, or was of no use."""
        with self._opening:
            if self._opens:
                return  # a handler: who waits there looks by itself
            self._opens = True
            try:
                self._open()
            finally:
                self._opens = False

    def _open(self) -> None:
        if self.live or self._closed or self._untold >= UNTOLD or not hasattr(socket, "SO_PASSCRED"):
            return
        if self._socket is not None:
            self.live = True  # it was doubted, and something has come since
            return
        heard = thread = None
        try:
            heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            heard.bind(f"\0{self._channel}")
            self._socket = heard
            thread = threading.Thread(target=self._read, args=(heard,), name="interlock-listens", daemon=True)
            thread.start()
            self.live = True
        except (OSError, RuntimeError) as error:  # no name, no descriptor, no thread
            if heard is not None:
                heard.close()
            self._socket = None
            if getattr(error, "errno", 0) != errno.EADDRINUSE:  # its own of before, which is just being closed
                self._untold = UNTOLD  # waiters look by themselves
        except BaseException:  # an interrupt
            self._socket, self.live = None, False
            if heard is not None and thread is not None and thread.ident is not None:
                _shut_down(heard)  # which its thread closes
            elif heard is not None:
                heard.close()
            raise
        if self._closed:  # by a handler
            self.close()

    async def aask(self, message: Any) -> None:
        """As `ask`, which takes some microseconds."""
        self.ask(message)

    def suspect(self) -> None:
        """As `Listener.suspect`."""
        self._untold += 1
        if self._untold >= UNTOLD:
            self.live = False

    def tell(self, messages: Mapping[str, Sequence[str]], io_timeout: float) -> None:
        """Tell waiters of other processes, by their channels; wait so many seconds for one that does not read."""
        if not hasattr(socket, "SO_PASSCRED"):
            return
        for channel, some in messages.items():
            try:
                _send(channel, some, io_timeout)
            except ConnectionRefusedError:
                pass  # its process has ended, or is not of this host
            except OSError as error:
                log.warn("could not tell who is next, who will find out by looking: %s", error)

    def close(self) -> None:
        """As `Listener.close`; the thread closes its socket."""
        self._closed = True
        self.live = False
        with self._opening:
            ending, self._socket = self._socket, None
        if ending is not None:
            _shut_down(ending)

    def _read(self, heard: socket.socket) -> None:
        """Tell waiters what comes, until the socket is shut down."""
        with heard:
            while True:
                try:
                    data, about, _, _ = heard.recvmsg(LONGEST, socket.CMSG_SPACE(_UCRED.size))
                except OSError:
                    break
                if self._closed:
                    break
                self._untold = 0
                self._hear(data.decode(errors="replace"), _sender(about))
        with self._opening:  # its name is free now
            if self._socket is heard or self._socket is None:
                self._socket, self.live = None, False

    def _hear(self, text: str, sender: int) -> None:
        """Tell waiters what somebody says.

        A fence is believed from those that could write it into the store: processes of this user, and root.  From
        others it only means that the claim should look.
        """
        believed = sender in (os.geteuid(), 0) and sender != _SOMEBODY
        for line in text.splitlines():
            if believed:
                self._waiters.notify_message(line)
            else:
                self._waiters.notify(line.partition(" ")[0], 0)


def _shut_down(heard: socket.socket) -> None:
    """End the thread that reads a socket; it closes it."""
    try:
        heard.shutdown(socket.SHUT_RD)
    except OSError:
        pass  # it has ended


def _sender(about: Iterable[tuple[int, int, bytes]]) -> int:
    """Return the user who sent a datagram, as the kernel says; -1 if it does not."""
    for _, kind, data in about:
        if kind == socket.SCM_CREDENTIALS:
            return int(_UCRED.unpack(data[: _UCRED.size])[1])
    return -1


def _send(channel: str, messages: Sequence[str], io_timeout: float) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
        speaking.settimeout(io_timeout)
        speaking.connect(f"\0{channel}")  # so that a full socket can be waited for
        for start in range(0, len(messages), MANY):
            speaking.send("\n".join(messages[start : start + MANY]).encode())


class DatagramQueue(SqlQueue):
    """The queue of a store that tells nobody anything: processes of one host tell each other; for both colours."""

    def thread_wakeup(self) -> ThreadEvent:
        """Return a wake-up for the calling thread."""
        return ThreadEvent()

    def task_wakeup(self) -> "TaskEvent":
        """Return a wake-up for the calling task."""
        from interlock.runtime.aio import TaskEvent  # only programs with an event loop load asyncio

        return TaskEvent()

    def _tell_others(self, messages: dict[str, list[str]]) -> Op[None]:
        yield Call(self._listener.tell, (messages, SENDING if self._hears_all else 0.0))
