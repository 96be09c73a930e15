"""The wire format of Redis (RESP 2): commands out, replies in; no I/O.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from typing import Any, NamedTuple, TypeAlias


class RedisCommand(NamedTuple):
    """What is sent to a server.

    Attributes:
        data: one command, or several.
        line: the key that says which node of a cluster it goes to; "" for any, "@host:port" for that one.
        replies: how many come; more than one are given as a list.
        replicas: that must have what it wrote, if it says by a number above 0 that a claim holds the lock.
    """

    data: bytes
    line: str = ""
    replies: int = 1
    replicas: int = 0


class ReplyError(Exception):
    """An error that the server answered with; its text begins with a code in capitals."""


Reply: TypeAlias = Any
"""An int, bytes, None, a list of these, or a ReplyError: what the command says it is."""


class Garbage(ValueError):
    """What came is no reply of Redis; its argument is the beginning of it."""


def pack(*words: bytes | str) -> bytes:
    """Return a command as it is sent."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def begun(more: int, *words: bytes | str) -> bytes:
    """Return the beginning of a command, to which `more` words are added by `ended`."""
    return b"*%d\r\n" % (len(words) + more) + pack(*words).partition(b"\r\n")[2]


def ended(start: bytes, *words: str) -> bytes:
    """Return a command of which only these words were missing."""
    for word in words:
        data = word.encode()
        start = b"%s$%d\r\n%s\r\n" % (start, len(data), data)
    return start


def grants(reply: Reply) -> bool:
    """Tell whether the script of an acquire says that the claim holds the lock."""
    return bool((reply[0] if type(reply) is list else reply) > 0)


def wait_for(replicas: int, io_timeout: float) -> bytes:
    """Return the question how many replicas have what this connection has written, in half of a time-out at most.

    Source: https://redis.io/docs/latest/commands/wait/
    """
    return pack("WAIT", str(replicas), str(int(io_timeout * 500)))


class _Incomplete(Exception):
    pass


LONGEST_LINE = 65536
MISSING: Any = object()
"""What `Parser.next` returns when no whole reply is there yet."""


class Parser:
    """Takes bytes as they come, and gives replies.

    Attributes:
        unread: what has come of a reply that is not complete.
    """

    __slots__ = ("_at", "unread")

    def __init__(self) -> None:
        self.unread = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self.unread = self.unread[self._at :] + data
        self._at = 0

    def next(self) -> Any:
        """Return the next reply, or MISSING; an error of the server is returned, not raised.

        Raises:
            Garbage: it is none.
        """
        start = self._at
        if start == len(self.unread):
            self.unread, self._at = b"", 0
            return MISSING
        try:
            return self._reply()
        except _Incomplete:
            self._at = start
            return MISSING
        except (ValueError, RecursionError):
            raise Garbage(self.unread[start : start + 60]) from None

    def _reply(self) -> Any:
        end = self.unread.find(b"\r\n", self._at)
        if end < 0:
            if self.unread[self._at : self._at + 1] not in b"+-:$*" or len(self.unread) - self._at > LONGEST_LINE:
                raise ValueError("not of RESP 2")
            raise _Incomplete
        kind, rest = self.unread[self._at : self._at + 1], self.unread[self._at + 1 : end]
        self._at = end + 2
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._exactly(int(rest))
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ReplyError(rest.decode(errors="replace"))
        raise ValueError("not of RESP 2")

    def _exactly(self, size: int) -> bytes:
        end = self._at + size
        if size < 0 or self.unread[end : end + 2] not in (b"", b"\r", b"\r\n"):
            raise ValueError("a text of another length")
        if len(self.unread) < end + 2:
            raise _Incomplete
        data = self.unread[self._at : end]
        self._at = end + 2
        return data
