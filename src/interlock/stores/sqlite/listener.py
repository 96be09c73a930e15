"""How waiters hear of their turn: a datagram to a Unix socket without a name in the file system.

What is lost is found by looking: a claim that waits does so every few seconds, and every few hundredths of one where
datagrams do not arrive, as between containers with networks of their own.
"""

import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

from interlock.core.errors import StoreError
from interlock.stores.sql.waiters import Waiters

LONGEST = 32768  # bytes of a datagram
UNTOLD = 2  # promotions in a row that were not heard of; then nothing is
SENDING = 0.05  # seconds to wait for a process that does not read
_UCRED = struct.Struct("iII")


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
        self._opening = threading.Lock()
        self._socket: socket.socket | None = None
        self._untold = 0
        self._closed = False

    def start(self, channel: str, waiters: Waiters) -> None:
        """As `Listener.start`."""
        self._channel = channel
        self._waiters = waiters

    def ask(self, _: Any) -> None:
        """Listen, unless that is done already, or was of no use."""
        with self._opening:
            if self.live or self._closed or self._untold >= UNTOLD or not hasattr(socket, "SO_PASSCRED"):
                return
            try:
                heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                heard.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
                heard.bind(f"\0{self._channel}")
            except OSError:
                self._untold = UNTOLD  # waiters look by themselves
                return
            arguments = self, heard, self._waiters
            threading.Thread(target=_read, args=arguments, name="interlock-listens", daemon=True).start()
            self._socket, self.live = heard, True

    async def aask(self, message: Any) -> None:
        """As `ask`, which takes some microseconds."""
        self.ask(message)

    def heard(self) -> None:
        """Note that datagrams arrive."""
        self._untold = 0

    def suspect(self) -> None:
        """As `Listener.suspect`."""
        self._untold += 1
        if self._untold >= UNTOLD:
            self.live = False

    def close(self) -> None:
        """As `Listener.close`; the thread closes its socket."""
        self._closed = True
        self.live = False
        with self._opening:
            ending, self._socket = self._socket, None
        if ending is not None:
            try:
                ending.shutdown(socket.SHUT_RD)
            except OSError:
                pass  # it has ended


def _read(listener: DatagramListener, heard: socket.socket, waiters: Waiters) -> None:
    """Tell waiters what comes, until the socket is shut down.

    A fence is believed from who could write it into the file: processes of this user, and root.  From others it only
    means that the claim should look.
    """
    with heard:
        while True:
            try:
                data, about, _, _ = heard.recvmsg(LONGEST, socket.CMSG_SPACE(_UCRED.size))
            except OSError:
                return
            if not data:
                return
            listener.heard()
            sender = next(
                (_UCRED.unpack(each[: _UCRED.size])[1] for _, kind, each in about if kind == socket.SCM_CREDENTIALS),
                -1,
            )
            for line in data.decode(errors="replace").splitlines():
                if sender in (os.geteuid(), 0):
                    waiters.tell_message(line)
                else:
                    waiters.tell(line.partition(" ")[0], 0)


def notify(channels: Sequence[str], messages: Sequence[str]) -> None:
    """Tell waiters of other processes.

    Raises:
        StoreError: one of them could not be told; the others were.
    """
    lines: dict[str, list[str]] = {}
    for channel, message in zip(channels, messages, strict=True):
        lines.setdefault(channel, []).append(message)
    failed: OSError | None = None
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as speaking:
        speaking.settimeout(SENDING)
        for channel, some in lines.items():
            for start in range(0, len(some), 256):
                try:
                    speaking.sendto("\n".join(some[start : start + 256]).encode(), f"\0{channel}")
                except ConnectionRefusedError:
                    pass  # its process has ended
                except OSError as error:
                    failed = error
    if failed is not None:
        raise StoreError(f"a waiting process does not read what it is told: {failed}") from failed
