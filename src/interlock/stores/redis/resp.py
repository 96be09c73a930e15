"""The wire format of Redis (RESP 2): commands out, replies in; no I/O.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from typing import Any, NamedTuple, TypeAlias


class Command(NamedTuple):
    """What is sent to a server.

    Attributes:
        data: one command, or several.
        line: the key that says which node of a cluster it goes to; "" for any, "@host:port" for that one.
        replies: how many come; more than one are given as a list.
    """

    data: bytes
    line: str = ""
    replies: int = 1


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


def ended(start: bytes, word: str) -> bytes:
    """Return a command of which only one word, or the rest of them, was missing."""
    data = word.encode()
    return b"%s$%d\r\n%s\r\n" % (start, len(data), data)


class _Incomplete(Exception):
    pass


LONGEST_LINE = 65536
MISSING: Any = object()
"""What `Parser.next` returns when no whole reply is there yet."""


class Parser:
    """Takes bytes as they come, and gives replies."""

    __slots__ = ("_at", "_data")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    @property
    def unread(self) -> bool:
        """Whether a part of a reply has come."""
        return self._at < len(self._data)

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data = self._data[self._at :] + data
        self._at = 0

    def next(self) -> Any:
        """Return the next reply, or MISSING; an error of the server is returned, not raised.

        Raises:
            Garbage: it is none.
        """
        start = self._at
        if start == len(self._data):
            return MISSING
        try:
            return self._reply()
        except _Incomplete:
            self._at = start
            return MISSING
        except (ValueError, RecursionError):
            raise Garbage(self._data[start : start + 60]) from None

    def _reply(self) -> Any:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            if self._data[self._at : self._at + 1] not in b"+-:$*" or len(self._data) - self._at > LONGEST_LINE:
                raise ValueError("not of RESP 2")
            raise _Incomplete
        kind, rest = self._data[self._at : self._at + 1], self._data[self._at + 1 : end]
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
        if size < 0 or self._data[end : end + 2] not in (b"", b"\r", b"\r\n"):
            raise ValueError("a text of another length")
        if len(self._data) < end + 2:
            raise _Incomplete
        data = self._data[self._at : end]
        self._at = end + 2
        return data
