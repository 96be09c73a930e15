"""Sentinels for torture tests: the primary is killed, and comes back as a replica."""

from collections.abc import Collection

from tests.servers import RedisSentinel, RedisServer
from tests.torture.faults import StruckServer
from tests.torture.plan import promises_of


class TorturedSentinel(StruckServer):
    """A primary, a replica, and their Sentinels; use it as a context manager.

    A restart is a fail-over here, and a clock would be set on one server only.
    """

    can: Collection[str] = ("pause", "failover", "wipe", "deafen")
    forgets: Collection[str] = ("pause", "failover")  # a long pause leads to a fail-over to a replica, which lags

    def __init__(self) -> None:
        self._group = RedisSentinel("valkey")
        self._paused: RedisServer = self._group.master
        self.url = self._group.url
        self.how = promises_of(self.url)

    def pause(self) -> None:
        """As `faults.StruckServer.pause`."""
        self._paused = self._group.master
        self._paused.pause()

    def resume(self) -> None:
        """As `faults.StruckServer.resume`; waits for a fail-over that the pause has caused."""
        self._paused.resume()
        self._group.settle()

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

    def close(self) -> None:
        """End all."""
        self._group.close()
