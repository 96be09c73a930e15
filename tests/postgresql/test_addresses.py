"""A server with several addresses: a silent address does not keep clients from the others."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.core.errors import StoreError
from tests.servers import PostgresServer
from tests.support.client_actors import side


def take(url: str, sync_or_async: str) -> None:
    """Acquire and release once."""
    with side(sync_or_async, url) as ours:
        assert ours.do(ours.take("a", timeout=0).release) is True


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


def test_the_next_address_is_tried_within_the_time_of_the_step(urls: list[str], sync_or_async: str) -> None:
    for url in urls:
        take(url, sync_or_async)


def test_a_name_with_several_addresses(
    url: str, server: PostgresServer, monkeypatch: pytest.MonkeyPatch, sync_or_async: str
) -> None:
    def found(host: Any, port: Any, *others: Any, **given: Any) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, int(port))) for address in ("127.0.0.2", server.host)]

    with socket.socket() as listening:
        listening.bind(("127.0.0.2", server.port))
        listening.listen(50)
        monkeypatch.setattr(socket, "getaddrinfo", found)
        take(url.replace(f"@{server.host}", "@several") + "&timeout=5", sync_or_async)


def test_what_each_address_said_is_told(server: PostgresServer, sync_or_async: str) -> None:
    url = "postgresql://me@/db?hostaddr=127.0.0.1,127.0.0.2&host=a,b&port=1,2"
    with pytest.raises(StoreError, match=r"127\.0\.0\.1.*refused(.|\n)*127\.0\.0\.2.*refused"):
        take(url, sync_or_async)
