"""The examples of docs/howto/optimistic.md run, in their order, on a real server."""

import asyncio
import re
from pathlib import Path
from typing import Any

import redis
import redis.asyncio

from tests.servers import RedisServer

PAGE = Path(__file__).parent.parent.parent / "docs/howto/optimistic.md"


def test_the_examples_of_the_page_run(server: RedisServer, other: Any, capsys: Any) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) >= 6
    other.set("copies", 3)
    with redis.Redis.from_url(server.url) as client:
        names: dict[str, Any] = {"client": client}
        for block in blocks:
            exec(compile(block, str(PAGE), "exec"), names)
        assert names["left"] == 1
        assert (names["number"], names["total"], names["fields"]) == (1, 2, 1)
        assert other.get("income") == "30"
        assert names["transact"](client, lambda tx: names["pay"](tx, 7)) == "paid before"

    async def main() -> Any:
        async with redis.asyncio.Redis.from_url(server.url) as names["async_client"]:
            return await names["main"]()

    assert asyncio.run(main()) == 1
    assert other.get("copies") == "1"
    assert capsys.readouterr().out == ""
