"""The client libraries, redis-py and valkey-py: their clients and URLs, and how to connect as they do.

A store makes connections of its own, of the client's class and with the client's settings (address, password, TLS,
Sentinel, ...): the library connects and logs in; what is said afterwards is interlock's own.
"""

from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, unquote, urlunsplit

from interlock.errors import InvalidArgument, LockError, StoreError
from interlock.stores.redis.message import unreachable

IO_TIMEOUT = 2.0  # seconds to wait for a reply, unless the client says otherwise


class Dialer(Protocol):
    """How to make a connection, and what to expect of it."""

    @property
    def patience(self) -> float:
        """Seconds to wait for a reply."""

    @property
    def where(self) -> str:
        """The address, for messages."""

    def connection(self, patience: float | None = None) -> Any:
        """Return a connection that is not connected yet.

        Args:
            patience: seconds for each answer while it logs in; None for the usual.
        """


class Recipe(NamedTuple):
    """How to make a connection.

    Attributes:
        make: the library's class of connections.
        settings: its arguments.
        patience: seconds to wait for a reply.
        where: the address, for messages.
        client: the client that it was taken from; kept so that what the settings refer to stays.
    """

    make: Any
    settings: dict[str, Any]
    patience: float
    where: str
    client: Any

    def connection(self, patience: float | None = None) -> Any:
        """As `Dialer.connection`."""
        if patience is None:
            return self.make(**self.settings)
        return self.make(**{**self.settings, "socket_timeout": patience, "socket_connect_timeout": patience})


def recipe_of(client: Any, tasks: bool) -> Recipe:
    """Return how `client` makes its connections."""
    pool = client.connection_pool
    return recipe(pool.connection_class, dict(pool.connection_kwargs), client, tasks)


def recipe(make: Any, settings: dict[str, Any], client: Any, tasks: bool) -> Recipe:
    """Return how to make connections of a class, without what only the library's own calls need."""
    library = make.__module__.partition(".")[0]
    patience = settings.get("socket_timeout") or IO_TIMEOUT
    settings["socket_timeout"] = patience
    settings["socket_connect_timeout"] = min(settings.get("socket_connect_timeout") or patience, patience)
    settings["retry_on_timeout"] = False
    # Repetition is the protocol's business: it knows what may be asked twice, and until when.
    retry = import_module(f"{library}.asyncio.retry" if tasks else f"{library}.retry")
    settings["retry"] = retry.Retry(import_module(f"{library}.backoff").NoBackoff(), 0)
    settings.pop("retry_on_error", None)
    settings["protocol"] = 2
    for extra in settings:
        if "maint_notifications" in extra:
            settings[extra] = None
    settings["decode_responses"] = False
    return Recipe(make, settings, patience, _where(settings), client)


def _where(settings: dict[str, Any]) -> str:
    if "path" in settings:
        return f"the Redis server at {settings['path']}"
    pool = settings.get("connection_pool")
    if pool is not None and hasattr(pool, "service_name"):
        return f"the Redis server that Sentinel calls {pool.service_name!r}"
    return f"the Redis server at {settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def is_async(client: Any) -> bool:
    """Tell whether a client is one of asyncio."""
    return any(".asyncio" in base.__module__ for base in type(client).__mro__)


def is_cluster(client: Any) -> bool:
    """Tell whether a client speaks to a cluster."""
    return hasattr(client, "nodes_manager")


def checked_client(client: Any, tasks: bool) -> Any:
    """Return `client` if a store can be made of it, in the colour asked for.

    Raises:
        InvalidArgument: it is no client, or of the other colour.
    """
    library = type(client).__module__.partition(".")[0]
    if not hasattr(client, "connection_pool") and not is_cluster(client):
        raise InvalidArgument(f"{client!r} is no client of {library}: give one like {library}.Redis(...)")
    if is_async(client) and not tasks:
        raise InvalidArgument(f"{client!r} is a client of asyncio: give it to interlock.aconnect()")
    if tasks and not is_async(client):
        raise InvalidArgument(
            f"{client!r} would block the event loop: give aconnect() a client of asyncio, or give it to connect()"
        )
    return client


def library_for(scheme: str) -> str:
    """Return the name of the installed library that serves a scheme.

    Raises:
        StoreError: none is installed.
    """
    wanted = ("valkey", "redis") if scheme.startswith("valkey") else ("redis", "valkey")
    for name in wanted:
        try:
            import_module(name)
        except ImportError:
            continue
        return name
    raise StoreError(f"{scheme}:// needs a client library: pip install 'interlock[redis]'")


def client_of(url: SplitResult, tasks: bool) -> Any:
    """Return a client for a URL, as the library itself reads it.

    Args:
        url: redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel:// or redis+cluster://.
        tasks: True for asyncio.

    Raises:
        InvalidArgument: the URL makes no sense to the library.
    """
    library = library_for(url.scheme)
    root = import_module(f"{library}.asyncio" if tasks else library)
    base, _, kind = url.scheme.partition("+")
    plain = urlunsplit(url._replace(scheme=_scheme(base, library)))
    if "://" not in plain:
        plain = plain.replace(":", "://", 1)  # a path without a host
    try:
        if kind == "sentinel":
            return _of_sentinel(url, library, tasks)
        if kind == "cluster":
            cluster = import_module(f"{library}.asyncio.cluster" if tasks else f"{library}.cluster")
            return getattr(cluster, f"{library.capitalize()}Cluster").from_url(plain, **_timeout(url))
        return getattr(root, library.capitalize()).from_url(plain, **_timeout(url))
    except LockError:
        raise
    except (ValueError, TypeError) as error:
        raise InvalidArgument(f"{plain!r} is no URL of a Redis server: {error}") from error
    except Exception as error:  # a client of a cluster connects at once
        raise unreachable(f"the Redis cluster at {url.hostname}:{url.port or 6379}", error) from error


def _timeout(url: SplitResult) -> dict[str, float]:
    return {} if "socket_timeout" in url.query else {"socket_timeout": IO_TIMEOUT}


def _scheme(base: str, library: str) -> str:
    secure = base in ("rediss", "valkeys")
    if base == "unix":
        return base
    if library == "redis":
        return "rediss" if secure else "redis"
    return "valkeys" if secure else "valkey"


def _of_sentinel(url: SplitResult, library: str, tasks: bool) -> Any:
    """Return a client that asks Sentinel: redis+sentinel://[user:password@]host:port[,host:port]/service[/db]."""
    module = import_module(f"{library}.asyncio.sentinel" if tasks else f"{library}.sentinel")
    service, _, db = url.path.strip("/").partition("/")
    if not service:
        raise InvalidArgument(
            "a Sentinel URL names the service: redis+sentinel://host:26379,host2:26379/mymaster[/db]"
        )
    login, _, hosts = url.netloc.rpartition("@")
    user, _, password = login.partition(":")
    sentinels = []
    for host in hosts.split(","):
        name, _, port = host.rpartition(":")
        sentinels.append((name or host, int(port) if name else 26379))
    options: dict[str, Any] = {"socket_timeout": IO_TIMEOUT}
    sentinel = module.Sentinel(sentinels, sentinel_kwargs=dict(options))
    if login:
        options |= {"password": unquote(password) or None, "username": unquote(user) or None}
    if db:
        options["db"] = int(db)
    return sentinel.master_for(service, **options)
