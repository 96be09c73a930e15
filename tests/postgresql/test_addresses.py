"""A server with several addresses: a silent address does not keep clients from the others."""

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import interlock
from interlock.core.errors import StoreError
from tests.servers import PostgresServer


def take(url: str) -> None:
    with interlock.connect(url) as locks:
        locks.lock("a").acquire(timeout=0).release()


async def atake(url: str) -> None:
    async with interlock.aconnect(url) as locks:
        await (await locks.lock("a").acquire(timeout=0)).release()


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections, and never answers."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield listening.getsockname()[1]


@pytest.fixture
def urls(url: str, server: PostgresServer, silent: int) -> list[str]:
    """The silent address first, then the server: by two addresses, and by two hosts."""
    query = f"port={silent},{server.port}&{url.partition('?')[2]}&timeout=5"
    here = f"postgresql://{server.user}@/{server.database}"
    return [f"{here}?hostaddr=127.0.0.1,127.0.0.1&{query}", f"{here}?host=127.0.0.1,127.0.0.1&{query}"]


def test_the_next_address_is_tried_while_there_is_time_for_the_step(urls: list[str]) -> None:
    for url in urls:
        take(url)
        asyncio.run(atake(url))


def test_a_name_with_several_addresses(url: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(host: Any, port: Any, *others: Any, **given: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, int(port))) for address in ("127.0.0.2", server.host)]

    with socket.socket() as listening:
        listening.bind(("127.0.0.2", server.port))
        listening.listen(50)
        monkeypatch.setattr(socket, "getaddrinfo", found)
        named = url.replace(f"@{server.host}", "@several") + "&timeout=5"
        take(named)
        asyncio.run(atake(named))


def test_what_each_address_said_is_told(server: PostgresServer) -> None:
    url = "postgresql://me@/db?hostaddr=127.0.0.1,127.0.0.2&host=a,b&port=1,2"
    for call in (lambda: take(url), lambda: asyncio.run(atake(url))):
        with pytest.raises(StoreError, match=r"127\.0\.0\.1.*refused(.|\n)*127\.0\.0\.2.*refused"):
            call()
