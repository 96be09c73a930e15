"""The limits on Redis: plain blocking sockets and commands encoded beforehand, without a library."""

from __future__ import annotations

import hashlib
import secrets
import socket
from urllib.parse import urlsplit

from bench.model import Place

LEASE = 30.0  # seconds
COMPARE_AND_DELETE = b"if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end return 0"
GIVE_BACK = (
    b"if redis.call('get',KEYS[1])~=ARGV[1] then return 0 end "
    b"redis.call('del',KEYS[1],KEYS[2]) redis.call('lpush',KEYS[2],1) "
    b"redis.call('pexpire',KEYS[2],ARGV[2]) return 1"
)


def key_of(place: Place) -> str:
    """The key of a measurement; each has its own, since the server is the same for all."""
    return f"{place.name}:{place.folder.name}"


def packed(*words: bytes | str | int) -> bytes:
    """Encode a command."""
    texts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"".join((b"*%d\r\n" % len(texts), *(b"$%d\r\n%b\r\n" % (len(text), text) for text in texts)))


class Pool:
    """One blocking connection; each command waits for its reply.

    Args:
        place: its facts contain the server's URL.
    """

    def __init__(self, place: Place) -> None:
        parts = urlsplit(place.facts["url"])
        self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 6379))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        place.closing.callback(self._socket.close)

    def ask(self, command: bytes) -> bytes:
        """Send an encoded command; return the first bytes of the reply, which is complete if it is short."""
        self._socket.sendall(command)
        reply = self._socket.recv(4096)
        if not reply or reply.startswith(b"-"):
            raise RuntimeError(f"the server says {reply!r}")
        return reply

    def load(self, script: bytes) -> str:
        """Load a script into the server; return its digest."""
        self.ask(packed("SCRIPT", "LOAD", script))
        return hashlib.sha1(script, usedforsecurity=False).hexdigest()


class SetNx:
    """SET NX PX and a compare-and-delete by EVALSHA: the least possible cost of a lock on a key. It does not wait."""

    def __init__(self, place: Place) -> None:
        self._pool = Pool(place)
        key, token = key_of(place), secrets.token_hex(16)
        self._take = packed("SET", key, token, "NX", "PX", int(LEASE * 1000))
        self._give = packed("EVALSHA", self._pool.load(COMPARE_AND_DELETE), 1, key, token)

    def acquire(self) -> None:
        """Take the key, which is free."""
        if self._pool.ask(self._take) != b"+OK\r\n":
            raise RuntimeError("somebody else has the key")

    def release(self) -> None:
        """Delete it."""
        if self._pool.ask(self._give) != b":1\r\n":
            raise RuntimeError("the key was not ours")


class BlpopToken:
    """One token in a list: the client that has popped it is the holder.

    Not reliable, because the token is lost when its holder dies; but the fastest hand-over between clients.
    """

    def __init__(self, place: Place) -> None:
        self._pool = Pool(place)
        key = key_of(place)
        self._take = packed("BLPOP", key, 0)
        self._give = packed("LPUSH", key, 1)
        if self._pool.ask(packed("SET", key + ":made", 1, "NX")) == b"+OK\r\n":
            self.release()

    def acquire(self) -> None:
        """Pop it."""
        self._pool.ask(self._take)

    def release(self) -> None:
        """Push it back."""
        self._pool.ask(self._give)


class SetNxBlpop:
    """SET NX; a client that fails waits in BLPOP for the signal of the next release, and tries again. Not fair."""

    def __init__(self, place: Place) -> None:
        self._pool = Pool(place)
        key, token, ttl = key_of(place), secrets.token_hex(16), int(LEASE * 1000)
        self._take = packed("SET", key, token, "NX", "PX", ttl)
        self._wait = packed("BLPOP", key + ":signal", f"{ttl / 1000:g}")
        self._give = packed("EVALSHA", self._pool.load(GIVE_BACK), 2, key, key + ":signal", token, ttl)

    def acquire(self) -> None:
        """Try, wait for a release, try again."""
        while self._pool.ask(self._take) != b"+OK\r\n":
            self._pool.ask(self._wait)

    def release(self) -> None:
        """Delete the key and leave one signal."""
        if self._pool.ask(self._give) != b":1\r\n":
            raise RuntimeError("the key was not ours")
