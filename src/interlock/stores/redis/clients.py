"""The settings of a client of redis-py or valkey-py, from its public attributes; no library is imported."""

from collections.abc import Mapping
from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Any

from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described
from interlock.drivers.redis_py import LIBRARIES, check_interface
from interlock.storekit._sync.pool import MAX_CONNECTIONS
from interlock.stores.redis.library import maker
from interlock.stores.redis.settings import IO_TIMEOUT, PORT, TLS, Address, Settings, Tls

UNSAID = (None, 0, 100, 1 << 31)  # the libraries' defaults, used if the program does not limit the connections
PLAIN_CONNECTIONS = ("Connection", "UnixDomainSocketConnection", "SentinelManagedConnection")
SECURE = ("SSLConnection", "SentinelManagedSSLConnection")


def settings_of_client(client: object, tasks: bool) -> Settings:
    """Return the settings of a client.

    Args:
        client: a client of redis-py or valkey-py.
        tasks: True if asyncio tasks will use the store.

    Raises:
        InvalidArgument: the object is no such client, or is sync for tasks, or async for threads.
    """
    cluster = hasattr(client, "nodes_manager")
    pool = getattr(client, "connection_pool", None)
    if not cluster and not hasattr(pool, "connection_kwargs"):
        raise InvalidArgument(f"{described(client)} is not a redis client. Pass one such as redis.Redis(...).")
    check_interface(client, tasks, "connect()", "aconnect()")
    if cluster:
        return _of_cluster(client)
    settings = _of_pool(pool)
    return _of_sentinel(pool) if hasattr(pool, "sentinel_manager") and settings.make is None else settings


def _of_pool(pool: Any) -> Settings:
    return _of_connection(pool.connection_class, pool.connection_kwargs, getattr(pool, "max_connections", None))


def _of_connection(kind: Any, given: Mapping[str, Any], most: Any) -> Settings:
    """Return the settings in a connection's arguments; with `make` if the connection class is the program's own."""
    limit = given.get("socket_timeout") or IO_TIMEOUT
    common = Settings(
        address=str(given.get("path") or "") or (given.get("host") or "localhost", int(given.get("port") or PORT)),
        io_timeout=limit,
        most=MAX_CONNECTIONS if most in UNSAID else int(most),
    )
    if kind.__module__.partition(".")[0] not in LIBRARIES or kind.__name__ not in PLAIN_CONNECTIONS + SECURE:
        make = maker(kind, given, None if iscoroutinefunction(kind.read_response) else limit)
        return replace(common, connect_timeout=limit, make=make)
    secure = kind.__name__ in SECURE
    provider = given.get("credential_provider")
    tls = Tls({name: given[name] for name in TLS.keys() & given.keys() if given[name] is not None})
    return replace(
        common,
        connect_timeout=min(limit, given.get("socket_connect_timeout") or limit),
        username=given.get("username"),
        password=given.get("password"),
        credentials=None if provider is None else lambda: tuple(provider.get_credentials()),
        db=int(given.get("db") or 0),
        client_name=given.get("client_name"),
        tls=tls if secure else None,
    )


def _of_sentinel(pool: Any) -> Settings:
    clients = [each.connection_pool for each in pool.sentinel_manager.sentinels]
    asking = [_of_pool(each) for each in clients]
    nodes = tuple(each.address for each in asking if not isinstance(each.address, str))
    return replace(_of_pool(pool), kind="sentinel", service=pool.service_name, nodes=nodes, sentinel=asking[0])


def _of_cluster(client: Any) -> Settings:
    manager = client.nodes_manager
    nodes = [*(getattr(client, "startup_nodes", None) or ()), *manager.startup_nodes.values()]
    known: list[Address] = [(node.host, int(node.port)) for node in nodes if node.host]
    node = nodes[-1]
    if hasattr(node, "connection_kwargs"):
        kind, given = node.connection_class, node.connection_kwargs
    else:
        pool = (getattr(client, "get_valkey_connection", None) or client.get_redis_connection)(node).connection_pool
        kind, given = pool.connection_class, pool.connection_kwargs
    return replace(
        _of_connection(kind, {**given, "db": 0}, given.get("max_connections")),
        kind="cluster",
        nodes=tuple(dict.fromkeys(known)),
        remap=getattr(manager, "address_remap", None),
    )
