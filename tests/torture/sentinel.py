"""Sentinels for torture tests: the primary is killed, and comes back as a replica."""

from collections.abc import Collection
from typing import Any

from tests.servers import RedisSentinel, RedisServer
from tests.torture.plan import promises_of


class TorturedSentinel:
    """A primary, a replica, and their Sentinels; use it as a context manager.

    Attributes:
        url, can, forgets, how: as in `Tortured`; there is no network for faults.
    """

    network: Any = None
    can: Collection[str] = ("pause", "failover", "wipe", "deafen")
    forgets: Collection[str] = ("pause", "failover")  # a long pause leads to a fail-over to a replica, which lags

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
        """As `faults.StruckServer.resume`; waits for a fail-over that the pause has caused."""
        self._paused.resume()
        self._group.settle()

    def restart(self) -> None:
        """Not injected: a restart is a fail-over here."""
        raise NotImplementedError

    empty = restart

    def step(self, seconds: float) -> None:
        """Not injected: the clock would be set on one server only."""
        raise NotImplementedError

    def wipe(self) -> None:
        """As `faults.StruckServer.wipe`."""
        self._group.master.command("FLUSHALL")

    def deafen(self) -> None:
        """As `faults.StruckServer.deafen`, except for the subscriptions of the Sentinels."""
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
