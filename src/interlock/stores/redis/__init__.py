"""redis://, rediss://, valkey://, unix://, redis+sentinel://, redis+cluster://: locks on a Redis or Valkey server."""

from typing import Any
from urllib.parse import SplitResult

from interlock.core.queue import ALL, Feature
from interlock.runtime import clock
from interlock.stores.redis.clients import settings_of_client
from interlock.stores.redis.settings import Settings, settings_of

__all__ = ["RedisStore", "from_client"]


class RedisStore:
    """A store on a server or cluster of Redis or Valkey.

    Args:
        settings: how to connect.
    """

    features: frozenset[Feature] = ALL
    frees_at_death = False
    in_process = False
    now = staticmethod(clock.awake_or_not)

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    @classmethod
    def from_url(cls, url: SplitResult) -> "RedisStore":
        """Return the store of a URL; it connects at first use."""
        return cls(settings_of(url))

    def queue(self) -> Any:
        """As `Store.queue`."""
        if self._settings.kind == "cluster":
            from interlock.stores.redis._sync.cluster import RedisClusterQueue

            return RedisClusterQueue(self._settings)
        from interlock.stores.redis._sync.queue import RedisQueue

        return RedisQueue(self._settings)

    def aqueue(self) -> Any:
        """As `Store.aqueue`."""
        if self._settings.kind == "cluster":
            from interlock.stores.redis._async.cluster import AsyncRedisClusterQueue

            return AsyncRedisClusterQueue(self._settings)
        from interlock.stores.redis._async.queue import AsyncRedisQueue

        return AsyncRedisQueue(self._settings)


def from_client(client: object, tasks: bool) -> RedisStore:
    """Return the store on the server of a client of the program.

    Args:
        client: a client of redis-py or valkey-py; only its settings are used, the store makes its own connections.
        tasks: True if asyncio tasks will use the store.
    """
    return RedisStore(settings_of_client(client, tasks))
