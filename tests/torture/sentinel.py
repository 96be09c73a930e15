"""Sentinels as a run of torture strikes them: the primary is killed, and comes back as a replica."""

from collections.abc import Collection
from typing import Any

from tests.servers import RedisSentinel, RedisServer
from tests.torture.plan import promises_of


class TorturedSentinel:
    """A primary, a replica, and who watches them; use it as a context manager.

    Attributes:
        url, can, forgets, how: as of `Tortured`; there is no network that could be struck.
    """

    network: Any = None
    can: Collection[str] = ("pause", "failover", "wipe", "deafen")
    forgets: Collection[str] = ("pause", "failover")  # who is paused for long has a successor, which lags

    def __init__(self) -> None:
        self._group = RedisSentinel("valkey")
        self._paused: RedisServer = self._group.master
        self.url = self._group.url
        self.how: dict[str, Any] = promises_of(self.url)

    def pause(self) -> None:
        """As `faults.StruckServer.pause`."""
        self._paused = self._group.master
        self._paused.pause()

    def resume(self) -> None:
        """As `faults.StruckServer.resume`; a fail-over that this led to may come late, and belongs to it."""
        self._paused.resume()
        self._group.settle()

    def restart(self) -> None:
        """Not made: it is a fail-over here."""
        raise NotImplementedError

    empty = restart

    def step(self, seconds: float) -> None:
        """Not made: a clock is that of one server."""
        raise NotImplementedError

    def wipe(self) -> None:
        """As `faults.StruckServer.wipe`."""
        self._group.master.command("FLUSHALL")

    def deafen(self) -> None:
        """As `faults.StruckServer.deafen`; the Sentinels are servers, and listen too."""
        self._group.master.command("CLIENT", "KILL", "TYPE", "PUBSUB")
        self._group.settle()

    def fail_over(self) -> None:
        """As `faults.StruckServer.fail_over`; the old primary comes back."""
        old = self._group.master
        self._group.fail_over(by_kill=True)
        old.start()
        self._group.settle()

    def left(self) -> dict[str, list[str]]:
        """As `faults.StruckServer.left`."""
        with self._group.master.wire() as wire:
            keys = [key for key in wire.ask("KEYS", "*") if wire.ask("PTTL", key) == -1]
            clients = wire.ask("CLIENT", "LIST").splitlines()
        servers = (" cmd=client", " name=sentinel-", " flags=S")
        return {"keys": keys, "connections": [each for each in clients if not any(word in each for word in servers)]}

    def __enter__(self) -> "TorturedSentinel":
        return self

    def __exit__(self, *_: object) -> None:
        self._group.close()
