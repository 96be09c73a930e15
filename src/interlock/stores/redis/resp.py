"""The wire format of Redis (RESP 2): commands out, replies in; no I/O.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from typing import Any, NamedTuple, TypeAlias


class RedisCommand(NamedTuple):
    """A request to a server.

    Attributes:
        data: one or several commands.
        line: the key whose cluster node gets the request; "" for any node, "@host:port" for that one.
        replies: the number of replies; more than one are returned as a list.
        replicas: the number of replicas that must confirm a grant.
    """

    data: bytes
    line: str = ""
    replies: int = 1
    replicas: int = 0


class ReplyError(Exception):
    """An error reply of the server; its text begins with a code in capitals."""


Reply: TypeAlias = Any
"""An int, bytes, None, a list of these, or a ReplyError."""


class Garbage(ValueError):
    """The received bytes are not a Redis reply; the argument is their beginning."""


def pack(*words: bytes | str) -> bytes:
    """Encode a command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def begun(more: int, *words: bytes | str) -> bytes:
    """Encode the beginning of a command; `ended` adds `more` words."""
    return b"*%d\r\n" % (len(words) + more) + pack(*words).partition(b"\r\n")[2]


def ended(start: bytes, *words: str) -> bytes:
    """Complete a command of `begun` with its last words."""
    for word in words:
        data = word.encode()
        start = b"%s$%d\r\n%s\r\n" % (start, len(data), data)
    return start


def only_number(data: bytes) -> int | None:
    """Return the number if the data are one whole integer, the most common reply, without the parser; else None."""
    number = data[1:-2]
    if data[:1] == b":" and data[-2:] == b"\r\n" and number.removeprefix(b"-").isdigit():
        return int(number)
    return None


def only_message(data: bytes, start: bytes) -> bytes | None:
    """Return the text if the data are one whole message, without the parser; None otherwise.

    Args:
        data: the received bytes.
        start: the beginning of each message of the channel, up to the length of its text.
    """
    size, _, text = data[len(start) :].partition(b"\r\n")
    whole = data.startswith(start) and text.endswith(b"\r\n") and size == b"%d" % (len(text) - 2)
    return text[:-2] if whole else None


def grants(reply: Reply) -> bool:
    """Return True if the reply of the `enter` script is a grant."""
    return bool((reply[0] if type(reply) is list else reply) > 0)


class _Incomplete(Exception):
    pass


LONGEST_LINE = 65536
INCOMPLETE: Reply = object()
"""The result of `Parser.next` while no complete reply has come."""


class Parser:
    """An incremental parser: bytes in, replies out.

    Attributes:
        unread: the bytes of replies that were not returned yet.
    """

    def __init__(self) -> None:
        self.unread = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes."""
        self.unread = self.unread[self._at :] + data
        self._at = 0

    def next(self) -> Reply:
        """Return the next reply, or MISSING; an error of the server is returned, not raised.

        Raises:
            Garbage: the bytes are not a Redis reply.
        """
        start = self._at
        if start == len(self.unread):
            self.unread, self._at = b"", 0
            return INCOMPLETE
        try:
            return self._reply()
        except _Incomplete:
            self._at = start
            return INCOMPLETE
        except (ValueError, RecursionError):
            raise Garbage(self.unread[start : start + 60]) from None

    def _reply(self) -> Reply:
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
