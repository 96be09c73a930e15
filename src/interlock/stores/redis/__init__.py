"""redis://, rediss://, valkey://, unix://, redis+sentinel://, redis+cluster://: locks on a Redis or Valkey server."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult

from interlock._redis.clients import checked_client, factory_of
from interlock._redis.clusterurl import hosts_of
from interlock._redis.libraries import is_cluster
from interlock._redis.slots import Address
from interlock._redis.urls import client_of
from interlock.core.oldstore import BaseStore, Store

__all__ = ["RedisStores", "from_client"]


class RedisStores(BaseStore):
    """What makes stores of URLs."""

    @classmethod
    def from_url(cls, url: SplitResult) -> Store:
        """Connect threads to a server."""
        client = client_of(url, tasks=False)
        return _for_threads(client, lambda: [each.close() for each in _all_of(client)], _starts(url))

    @classmethod
    def from_url_for_tasks(cls, url: SplitResult) -> Store:
        """Connect asyncio tasks to a server."""
        client = client_of(url, tasks=True)

        async def release(closing: bool) -> None:
            from interlock._redis.perloop import leave  # only programs with an event loop load asyncio

            if not is_cluster(client):
                for each in _all_of(client):
                    await leave(each.connection_pool)
            elif closing:
                await (getattr(client, "aclose", None) or client.close)()

        return _for_tasks(client, release, _starts(url))


def _starts(url: SplitResult) -> list[Address]:
    """Return the nodes of a cluster that a URL names."""
    return hosts_of(url) if url.scheme.endswith("+cluster") else []


def _all_of(client: Any) -> list[Any]:
    """Return a client, and those with which it asks the Sentinels."""
    manager = None if is_cluster(client) else getattr(client.connection_pool, "sentinel_manager", None)
    return [client, *(manager.sentinels if manager is not None else ())]


def from_client(client: Any, tasks: bool) -> Store:
    """Return the store on the server of a client that the program has already.

    Args:
        client: of redis-py or valkey-py; it stays the program's, and open.
        tasks: True if asyncio tasks will use the store.
    """
    checked_client(client, tasks)
    return _for_tasks(client, None) if tasks else _for_threads(client, None)


def _for_threads(client: Any, release: Any, starts: Sequence[Address] = ()) -> Store:
    from interlock.stores.redis.store import RedisStore
    from interlock.stores.redis.subscription import Subscription

    if is_cluster(client):
        from interlock._redis.cluster import AnyNode, ClusterPool
        from interlock._redis.map import Map

        map = Map(client, tasks=False, starts=starts)
        cluster = ClusterPool(map)
        return RedisStore(
            cluster, lambda *its: map.heard_by(Subscription(AnyNode(map, cluster.nodes), *its)), release
        )
    from interlock._redis.pool import Pool
    from interlock._redis.sentinel import SentinelPool
    from interlock._redis.sentinels import asks_sentinel

    factory = factory_of(client, tasks=False)
    pool = (SentinelPool if asks_sentinel(factory) else Pool)(factory)
    return RedisStore(pool, lambda *its: Subscription(factory, *its), release)


def _for_tasks(client: Any, release: Any, starts: Sequence[Address] = ()) -> Store:
    from interlock.stores.redis.astore import AsyncRedisStore
    from interlock.stores.redis.asubscription import AsyncSubscription

    if is_cluster(client):
        from interlock._redis.acluster import AsyncClusterPool
        from interlock._redis.cluster import AnyNode
        from interlock._redis.map import Map

        map = Map(client, tasks=True, starts=starts)
        cluster = AsyncClusterPool(map)
        node = AnyNode(map, cluster.nodes)
        return AsyncRedisStore(cluster, lambda *its: map.heard_by(AsyncSubscription(node, *its)), release)
    from interlock._redis.apool import AsyncPool
    from interlock._redis.asentinel import AsyncSentinelPool
    from interlock._redis.sentinels import asks_sentinel

    factory = factory_of(client, tasks=True)
    pool = (AsyncSentinelPool if asks_sentinel(factory) else AsyncPool)(factory)
    return AsyncRedisStore(pool, lambda *its: AsyncSubscription(factory, *its), release)
