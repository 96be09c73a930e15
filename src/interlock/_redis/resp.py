"""The wire format of Redis (RESP 2 and 3): commands out, replies in.

Source: https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

try:
    import hiredis
except ImportError:  # pragma: no cover - both ways are tested by the parser's tests
    hiredis = None  # type: ignore[assignment,unused-ignore]


class ReplyError(Exception):
    """An error that the server answered with; its text begins with a code in capitals."""


class Garbage(ValueError):
    """What came is no reply of Redis; its argument is the beginning of it, if that is known."""


class Push(list[Any]):
    """A message that the server sent by itself (RESP 3)."""


def pack(*words: bytes | str) -> bytes:
    """Return a command as it is sent."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def ended_by(start: bytes, word: str) -> bytes:
    """Return a command of which only the last word was missing."""
    data = word.encode()
    return b"%s$%d\r\n%s\r\n" % (start, len(data), data)


class _Incomplete(Exception):
    pass


MISSING = object()
"""What `Parser.next` returns when no whole reply is there yet."""


class PlainParser:
    """Takes bytes as they come, and gives replies."""

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        self._data = self._data[self._at :] + data
        self._at = 0

    def next(self) -> Any:
        """Return the next reply, or MISSING; an error of the server is returned, not raised."""
        start = self._at
        try:
            return self._reply()
        except _Incomplete:
            self._at = start
            return MISSING
        except (ValueError, RecursionError):
            raise Garbage(self._data[start : start + 60]) from None

    def _line(self) -> bytes:
        end = self._data.find(b"\r\n", self._at)
        if end < 0:
            raise _Incomplete
        line = self._data[self._at : end]
        self._at = end + 2
        return line

    def _exactly(self, size: int) -> bytes:
        end = self._at + size
        if len(self._data) < end + 2:
            raise _Incomplete
        data = self._data[self._at : end]
        self._at = end + 2
        return data

    def _reply(self) -> Any:
        line = self._line()
        kind, rest = line[:1], line[1:]
        if kind == b":":
            return int(rest)
        if kind == b"$" or kind == b"=":
            return None if rest == b"-1" else self._exactly(int(rest))
        if kind == b"+" or kind == b"(" or kind == b",":
            return rest
        if kind == b"-":
            return ReplyError(rest.decode(errors="replace"))
        if kind == b"!":
            return ReplyError(self._exactly(int(rest)).decode(errors="replace"))
        if kind == b"*" or kind == b"~":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        if kind == b">":
            return Push(self._reply() for _ in range(int(rest)))
        if kind == b"%" or kind == b"|":
            pairs = [(self._reply(), self._reply()) for _ in range(int(rest))]
            return self._reply() if kind == b"|" else [each for pair in pairs for each in pair]
        if kind == b"_":
            return None
        if kind == b"#":
            return rest == b"t"
        raise Garbage(line[:60])


class NumberParser:
    """As `PlainParser`, by hiredis."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(protocolError=Garbage, replyError=ReplyError, notEnoughData=MISSING)

    def feed(self, data: bytes) -> None:
        """As `PlainParser.feed`."""
        self._reader.feed(data)

    def next(self) -> Any:
        """As `PlainParser.next`."""
        reply = self._reader.gets()
        return reply if type(reply) is not hiredis.PushNotification else Push(reply)


Parser: TypeAlias = "PlainParser | NumberParser"


def parser() -> Parser:
    """Return a new parser, by hiredis if it is installed."""
    return PlainParser() if hiredis is None else NumberParser()


def messages(parser: Parser) -> Iterator[str]:
    """Yield the texts of the messages that were received on a channel.

    Raises:
        Garbage: it is not RESP.
    """
    while (message := parser.next()) is not MISSING:
        if isinstance(message, list) and message[0] == b"message":
            yield message[2].decode(errors="replace")
