"""Which server is the primary, by the word of Sentinel: asked before a command if the last answer is a second old.

A primary that was stopped and comes back, or that is cut off from its Sentinels only, does not know that another one
was promoted, and goes on to give locks away over connections that are still open.
Source: https://redis.io/docs/latest/develop/reference/sentinel-clients/
"""

from math import inf
from time import monotonic
from typing import Any

from interlock._redis.clients import OneServer, factory_of
from interlock._redis.message import Message
from interlock._redis.resp import ReplyError, pack
from interlock.runtime.log import warn

CONFIRMED = 1.0  # seconds for which the word of Sentinel is good
IO_TIMEOUT = 0.25  # seconds to wait for a Sentinel
REST = 10.0  # seconds for which one that did not answer is not asked
SLOWER = 10  # if none answers, this many times as long as it took passes until the next try
ASK = Message(pack("SENTINEL", "MASTERS"), "")

Answer = tuple[int, tuple[str, int]]
"""The epoch of the last fail-over that a Sentinel knows of, and the address of the primary."""


def asks_sentinel(factory: OneServer) -> bool:
    """Tell whether connections lead to the primary that Sentinel names."""
    pool = factory.client.connection_pool
    return hasattr(pool, "sentinel_manager") and bool(pool.is_master)


class Sentinels:
    """What the Sentinels of one service said last; the part that both colours share.

    Args:
        factory: how to connect to the primary.
        tasks: True for asyncio.

    Attributes:
        asked_at: when they were asked last and answered, monotonic; later if none did, so that there is a pause.
    """

    def __init__(self, factory: OneServer, tasks: bool) -> None:
        pool = factory.client.connection_pool
        self._service = pool.service_name
        self._clients: list[Any] = pool.sentinel_manager.sentinels  # the library asks the first one first
        self._tasks = tasks
        self._resting: dict[int, float] = {}
        self._address: tuple[str, int] | None = None
        self._epoch = 0
        self._silent = False
        self.asked_at = -inf

    def to_ask(self) -> list[Any]:
        """Return the clients of those to ask: a Sentinel that did not answer rests for a while."""
        now = monotonic()
        return [each for each in self._clients if self._resting.get(id(each), -inf) <= now]

    def factory_for(self, client: Any) -> OneServer:
        """Return how to connect to one, without waiting for long."""
        factory = factory_of(client, self._tasks)
        io_timeout = min(IO_TIMEOUT, factory.io_timeout)
        settings = {**factory.settings, "socket_timeout": io_timeout, "socket_connect_timeout": io_timeout}
        return factory._replace(settings=settings, io_timeout=io_timeout)

    def rest(self, client: Any) -> None:
        """Note that one did not answer."""
        self._resting[id(client)] = monotonic() + REST

    def hear(self, began: float, replies: list[tuple[Any, Any]]) -> bool:
        """Take what they said; return whether there is another primary than before.

        They may disagree for a while: the one that knows of the latest fail-over is right, and the library asks it
        first from now on.

        Args:
            began: when they were asked, monotonic.
            replies: the clients of those who answered, with the answers.
        """
        answers = [(answer, client) for client, reply in replies if (answer := self._answer_in(reply)) is not None]
        if not answers:
            now = monotonic()
            self.asked_at = now + SLOWER * (now - began)
            if not self._silent:
                self._silent = True
                warn("no Sentinel of %r answers: a new primary would not be noticed", self._service)
            return False
        self._silent = False
        self.asked_at = began
        (epoch, address), best = max(answers, key=lambda each: each[0][0])
        agree = sum(answer[1] == address for answer, _ in answers)
        if epoch < self._epoch and agree <= len(self._clients) // 2:
            return False  # those who knew of a later one are silent; a majority would have begun to count anew
        place = self._clients.index(best)
        self._clients[0], self._clients[place] = best, self._clients[0]
        before, self._address, self._epoch = self._address, address, epoch
        return before is not None and before != address

    def _answer_in(self, reply: Any) -> Answer | None:
        if isinstance(reply, ReplyError):
            return None
        try:
            for flat in reply:
                facts = dict(zip(flat[::2], flat[1::2], strict=False))
                if facts.get(b"name") == self._service.encode():
                    return int(facts.get(b"config-epoch", 0)), (facts[b"ip"].decode(), int(facts[b"port"]))
        except (TypeError, ValueError, KeyError):
            pass  # whatever answers there, it is no Sentinel
        return None
