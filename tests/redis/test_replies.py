"""Replies and messages are read alike, however the network cuts them, with and without the parser."""

import socket
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from interlock.core.errors import StoreError
from interlock.runtime import clock
from interlock.stores.redis._sync.connection import RedisConnection
from interlock.stores.redis._threads import PolledStream
from interlock.stores.redis.resp import begun, pack

pytestmark = pytest.mark.skipif(not hasattr(socket, "SOCK_SEQPACKET"), reason="packets keep their bounds only there")
SIZES = [1, 2, 7, 23, 1000]


class Ends(NamedTuple):
    """A connection, and the server's end, each of whose packets is received by itself."""

    connection: RedisConnection
    server: socket.socket

    def send(self, data: bytes, size: int) -> None:
        """Send in packets of some size."""
        for at in range(0, len(data), size):
            self.server.send(data[at : at + size])


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A subscribed connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection = RedisConnection(PolledStream(ours, False), "redis://test", 5.0)
    connection.channel, connection.message_start = "ch", begun(1, "message", "ch") + b"$"
    with theirs:
        yield Ends(connection, theirs)
    connection.close()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("texts", [["a 1"], [""], ["a 1 2", "b 2"], ["two\r\nlines", "$3\r\nabc", "é", "c 3"]])
def test_each_message_is_received_once(ends: Ends, texts: list[str], size: int) -> None:
    ends.send(pack("subscribe", "ch", "1"), size)
    assert ends.connection.receive(clock.now() + 5) == []
    for _ in range(2):
        ends.send(b"".join(pack("message", "ch", text) for text in texts), size)
        assert [ends.connection.receive(clock.now() + 5) for _ in texts] == [[text] for text in texts]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("data", "reply"),
    [
        (b":1796000000000000\r\n", 1796000000000000),
        (b":0\r\n", 0),
        (b":-15023\r\n", -15023),
        (b"$5\r\n:1\r\n2\r\n", b":1\r\n2"),
        (b"*2\r\n:-3\r\n$-1\r\n", [-3, None]),
    ],
)
def test_a_reply_is_read_whatever_its_packets(ends: Ends, data: bytes, reply: object, size: int) -> None:
    for _ in range(2):
        ends.send(data, size)
        assert ends.connection.raw(b"*1\r\n$4\r\nPING\r\n", 1, clock.now() + 5) == reply


@pytest.mark.parametrize("data", [b":--5\r\n", b":\r\n", b":-\r\n", b":5-\r\n", b":1\r:2\r\n"])
def test_a_wrong_number_is_an_error(ends: Ends, data: bytes) -> None:
    ends.send(data, len(data))
    with pytest.raises(StoreError, match="does not reply in the Redis protocol"):
        ends.connection.raw(b"*1\r\n$4\r\nPING\r\n", 1, clock.now() + 5)
