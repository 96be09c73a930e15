"""Words between the processes of one user on one host: whose heir a claim is, and that its turn has come.

Who stands in line right behind a claim of another process tells that process so; it lets its heir in by another word,
and tells the server after that.  Each store that waits has two datagram sockets, with names made of its channel's in
Linux' abstract namespace, so no file is left behind.  The kernel says who sent a datagram, and nobody hears one of
another user.  A word that can't be sent is not needed: the server tells then.
"""

import hashlib
import os
import re
import socket
import struct
import threading
from functools import cache
from typing import Any
from uuid import uuid4

from interlock.stores.native import compiled
from interlock.stores.redis.bells import Bells, Heir

CHANNEL = "interlock:wake:"
PLACE = 12  # characters
TURNS, HEIRS = b"\0interlock-turns:", b"\0interlock-heirs:"
LONGEST = 512  # bytes of a word
JUNK = 32  # datagrams that are no words are dropped at a time
WORD = re.compile(rb"([!-~]+) (?:([!-~]+) )?([0-9]{1,18})")
SENDER = struct.Struct("iII")  # process, user, group
native = compiled("interlock.stores.redis._exchange")


@cache
def place() -> str:
    """Return what the processes have in common that can send each other words; "" if this one can't send any."""
    if not hasattr(socket, "SO_PASSCRED"):
        return ""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            anybody = int(file.read())
        network = os.stat("/proc/self/ns/net").st_ino
    except OSError:
        return ""
    if os.getuid() == anybody:
        return ""  # in a container all users that it does not know are shown as this one
    return hashlib.sha256(f"{boot} {network} {os.getuid()}".encode()).hexdigest()[:PLACE]


def fresh_channel() -> str:
    """Return the name of a channel that nobody else listens to; it begins with the place."""
    return f"{CHANNEL}{place()}:{uuid4().hex}"


class Near:
    """What one store says to its neighbours, and hears from them.

    Args:
        bells: whom to tell.

    Attributes:
        turns: the socket for those who wait, while something is heard.
        fd: its file; -1 while nothing is heard.
        user: whose words are heard.
    """

    def __init__(self, bells: Bells) -> None:
        self._bells = bells
        self._channel = self._here = b""
        self.user = 0
        self.turns: socket.socket | None = None
        self._heirs: socket.socket | None = None
        self.fd = -1
        self._opening = threading.Lock()
        self._closed = False

    def open(self, channel: str) -> None:
        """Hear from now on, if that is possible here.

        Args:
            channel: the store's own.
        """
        with self._opening:
            if self.turns is not None or self._closed or not place():
                return
            turns = None
            try:
                turns = _bound(TURNS, channel)
                self._heirs = _bound(HEIRS, channel)
            except OSError:
                if turns is not None:
                    turns.close()
                return
            self._channel, self._here = channel.encode(), f"{CHANNEL}{place()}:".encode()
            self.user = os.getuid()
            self.turns, self.fd = turns, turns.fileno()

    def follow(self, channel: bytes, before: str, id: str, fence: int) -> None:
        """Tell the process of the claim `before` that `id` is its heir, if it is another one, and near.

        Args:
            channel: on which the process of `before` hears the server.
            before: the claim before.
            id: the claim that comes next.
            fence: the one that it has already.
        """
        if channel != self._channel and channel.startswith(self._here):
            _send(self.turns, f"{before} {id} {fence}", HEIRS + channel)

    def let_in(self, heir: str, address: bytes) -> bool:
        """Tell an heir in another process that it holds the lock; False if it can't be told.

        Args:
            heir: its id and its fence, with a space between them.
            address: where its process hears.
        """
        # Since it listened the process may have become another user's, whose words are not heard.
        return os.getuid() == self.user and _send(self.turns, heir, address)

    def hear_heirs(self) -> None:
        """Take what has come about who follows whom."""
        while (word := _word(self._heirs, self.user)) is not None:
            before, heir = word
            if type(heir) is tuple:
                self._bells.keep(before, heir)

    def hear_turns(self) -> None:
        """Take what has come for those who wait."""
        while (word := _word(self.turns, self.user)) is not None:
            self.take(word)

    def take(self, word: Any) -> None:
        """Take a word for one that waits."""
        id, fence = word
        if type(fence) is int:
            self._bells.let_in(id, fence)

    def close(self) -> None:
        """Hear no more."""
        self._closed = True
        self.fd = -1
        for sock in (self.turns, self._heirs):
            if sock is not None:
                sock.close()
        self.turns = self._heirs = None

    def reset(self) -> None:
        """In a forked child: leave the sockets to the parent."""
        self.close()
        self._closed = False
        self._opening = threading.Lock()  # it may be locked


class _Socket(socket.socket):
    """One that is closed without a warning when its store is dropped, as those of the client libraries are."""

    def __del__(self) -> None:
        if self.fileno() >= 0:
            self.close()


def _bound(kind: bytes, channel: str) -> socket.socket:
    sock = _Socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sock.bind(kind + channel.encode())
    except OSError:
        sock.close()
        raise
    return sock


def _send(sock: socket.socket | None, word: str, address: bytes) -> bool:
    if sock is None:
        return False
    try:
        sock.sendto(word.encode(), address)
    except OSError:  # nobody hears there, or has not listened for long
        return False
    return True


def _word(sock: socket.socket | None, user: int) -> Any:
    """Take the next word: (id, fence), or (id of the one before, heir); None if there is none."""
    if sock is None:
        return None
    if native is not None:
        return native.word(sock.fileno(), user)
    for _ in range(JUNK):
        try:
            data, about, _, address = sock.recvmsg(LONGEST, socket.CMSG_SPACE(SENDER.size))
        except OSError:
            return None
        if about and SENDER.unpack(about[0][2])[1] == user and (word := _read(data, address)) is not None:
            return word
    return None


def _read(data: bytes, address: object) -> tuple[str, int | Heir] | None:
    """Return a word; None if it is none."""
    found = WORD.fullmatch(data)
    if found is None or type(address) is not bytes or not address:
        return None
    first, second, fence = found.groups()
    if second is None:
        return first.decode(), int(fence)
    return first.decode(), (second.decode(), int(fence), address)
