"""The code of the pages about these locks runs, and the original scheme does what its page says."""

import asyncio
import inspect
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import redis
import redis.asyncio

from tests.servers import RedisServer

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "adr/0033-original-lock-on-redis.md"
REFERENCE = DOCS / "stores/redis-keylock.md"


class Stuck(Exception):
    """A client steps back again and again."""


def blocks(page: Path) -> list[str]:
    """Return the code of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.S)


def pauses(rounds: int = 25) -> Any:
    """Return a pause that does not sleep, and gives up after so many rounds."""
    left = iter(range(rounds))

    def pause() -> None:
        if next(left, None) is None:
            raise Stuck

    return pause


class Died(Exception):
    """The client dies before it can send a command."""


@pytest.fixture
def client(server: RedisServer) -> Iterator[redis.Redis]:
    """A client that decodes replies, of an empty server."""
    with redis.Redis(host=server.host, port=server.port, decode_responses=True) as found:
        found.flushall()
        yield found


@pytest.fixture
def seeds() -> dict[str, Any]:
    """The code of the page: `acquire` and `release`."""
    names: dict[str, Any] = {}
    exec(blocks(PAGE)[0], names)
    return names


def test_who_finds_it_used_leaves_its_id_and_nobody_ever_gets_in(client: redis.Redis, seeds: dict[str, Any]) -> None:
    seeds["acquire"](client, "book:1", "A", pauses())
    assert seeds["acquire"](client, "book:1", "B", pauses()) is None
    seeds["release"](client, "book:1")
    assert not client.exists("using:book:1")  # nobody holds it
    assert client.smembers("pending:book:1") == {"B"}  # the stuck id
    for who in ("C", "A", "D"):
        with pytest.raises(Stuck):
            seeds["acquire"](client, "book:1", who, pauses())
    assert client.ttl("pending:book:1") == -1  # and it will never go away
    assert seeds["acquire"](client, "book:1", "B", pauses()) is True  # only B itself could repair it


@pytest.mark.parametrize("command", ["scard", "get", "srem"])
def test_a_dead_client_of_the_original_scheme_blocks_all_others(
    client: redis.Redis, seeds: dict[str, Any], command: str
) -> None:
    with patch.object(client, command, side_effect=Died), pytest.raises(Died):
        seeds["acquire"](client, "book:1", "A", pauses())
    with pytest.raises(Stuck):
        seeds["acquire"](client, "book:1", "B", pauses())
    assert {client.ttl(key) for key in client.scan_iter()} == {-1}  # nothing of it will ever go away


def test_a_dead_holder_of_the_original_scheme_holds_for_ever(client: redis.Redis, seeds: dict[str, Any]) -> None:
    assert seeds["acquire"](client, "book:1", "A", pauses()) is True
    with patch.object(client, "delete", side_effect=Died), pytest.raises(Died):
        seeds["release"](client, "book:1")
    assert seeds["acquire"](client, "book:1", "B", pauses()) is None
    assert client.ttl("using:book:1") == -1


def test_two_clients_of_the_original_scheme_step_back_together(client: redis.Redis, seeds: dict[str, Any]) -> None:
    both = threading.Barrier(2, timeout=20)

    class InStep:
        def __getattr__(self, command: str) -> Any:
            if command in ("scard", "srem"):  # both have added themselves; both have seen the other
                both.wait()
            return getattr(client, command)

    with ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(seeds["acquire"], InStep(), "book:1", who, pauses()) for who in ("A", "B")]
        assert [type(each.exception(20)) for each in tries] == [Stuck, Stuck]
    assert not client.exists("using:book:1")  # and nobody held it during that time


def test_the_repair_leaves_nothing_behind(client: redis.Redis, server: RedisServer) -> None:
    exec(blocks(PAGE)[1], {"url": server.url})


def test_the_examples_of_the_reference_say_what_they_answer(client: redis.Redis, server: RedisServer) -> None:
    checked = 0
    names: dict[str, Any] = {"client": client}
    for block in blocks(REFERENCE):
        if "async def" in block:
            exec(block, names)
            assert asyncio.run(awaited(names["report"], server)) is True
            continue
        exec(re.sub(r"(?m)^( *)(\w[\w.]+\(.*\))\s+# (True|False)\b.*", r"\1assert (\2) is \3", block), names)
        checked += block.count("# True") + block.count("# False")
    assert checked >= 20


async def awaited(report: Any, server: RedisServer) -> Any:
    """Run a coroutine function of the page with a client for asyncio."""
    client = redis.asyncio.Redis(host=server.host, port=server.port)
    try:
        result = report(client)
        assert inspect.iscoroutine(result)
        return await result
    finally:
        await client.aclose()
