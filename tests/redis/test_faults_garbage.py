"""The peer is no Redis server, or a device changes the replies: the error names the cause."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from interlock.core.errors import StoreError
from interlock.testing.store_fixture import TASKS, THREADS, ContractWorld
from tests.support.redis_helpers import place_of

GARBAGE = [b"HTTP/1.1 502 Bad Gateway\r\n\r\n", b":many\r\n", b"$some\r\n", b"*1\r\n:x\r\n", b"\x00\x01\x02\xff"]


class Garbling(socketserver.ThreadingTCPServer):
    """Answers +OK to each command except scripts, to which it gives another answer.

    Attributes:
        words: the answer to scripts.
        scripts: how many scripts each connection was asked to run.
    """

    allow_reuse_address = daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Garbled)
        self.words = b""
        self.scripts: list[int] = []


class _Garbled(socketserver.StreamRequestHandler):
    server: Garbling

    def handle(self) -> None:
        number = len(self.server.scripts)
        self.server.scripts.append(0)
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                size = int(self.rfile.readline()[1:])
                words.append(self.rfile.read(size + 2)[:-2])
            if words[0].startswith(b"EVAL"):
                self.server.scripts[number] += 1
                self.wfile.write(self.server.words)
            else:
                self.wfile.write(b"+OK\r\n")


@pytest.fixture
def garbling() -> Iterator[Garbling]:
    with Garbling() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("sync_or_async", [THREADS, TASKS])
@pytest.mark.parametrize("words", GARBAGE)
def test_garbage_is_shown_in_the_error_and_ends_the_connection(
    garbling: Garbling, sync_or_async: str, words: bytes
) -> None:
    garbling.words = words
    port = garbling.server_address[1]
    with closing(ContractWorld(place_of(f"redis://127.0.0.1:{port}?socket_timeout=1"), sync_or_async)) as world:
        lock: Any = world.connect().lock("page")
        ann = world.actor()
        for _ in range(2):
            with pytest.raises(StoreError, match="does not reply in the Redis protocol") as caught:
                ann.do(lock.acquire, timeout=1)
            assert f"127.0.0.1:{port}" in str(caught.value)
            assert repr(words[:10])[2:-1] in str(caught.value)
    # Tasks share a connection, so the withdrawal of the first claim may be on its way already.
    assert max(garbling.scripts) <= (1 if sync_or_async == THREADS else 2)
