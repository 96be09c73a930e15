"""redis://, rediss://, valkey://, unix://, redis+sentinel://, redis+cluster://: locks on a Redis or Valkey server."""

from urllib.parse import SplitResult

from interlock.core._async.protocols import AsyncQueue
from interlock.core._sync.protocols import Queue
from interlock.core.queue import ALL
from interlock.storekit.store import Store
from interlock.stores.redis.clients import settings_of_client
from interlock.stores.redis.settings import Settings, settings_of

__all__ = ["RedisStore", "from_client"]


class RedisStore(Store):
    """A store on a server or cluster of Redis or Valkey.

    Args:
        options: how to connect.
    """

    features = ALL

    def __init__(self, options: Settings) -> None:
        self._options = options

    @classmethod
    def from_url(cls, url: SplitResult) -> "RedisStore":
        """Return the store of a URL; it connects at first use."""
        return cls(settings_of(url))

    def queue(self) -> Queue:
        """See `Store.queue`."""
        if self._options.kind == "cluster":
            from interlock.stores.redis._sync.cluster import RedisClusterQueue

            return RedisClusterQueue(self._options)
        from interlock.stores.redis._sync.queue import RedisQueue

        return RedisQueue(self._options)

    def aqueue(self) -> AsyncQueue:
        """See `Store.aqueue`."""
        if self._options.kind == "cluster":
            from interlock.stores.redis._async.cluster import AsyncRedisClusterQueue

            return AsyncRedisClusterQueue(self._options)
        from interlock.stores.redis._async.queue import AsyncRedisQueue

        return AsyncRedisQueue(self._options)


def from_client(client: object, tasks: bool) -> RedisStore:
    """Return the store on the server of a client of the program.

    Args:
        client: a client of redis-py or valkey-py; only its settings are used, the store makes its own connections.
        tasks: True if asyncio tasks will use the store.
    """
    return RedisStore(settings_of_client(client, tasks))
