"""The client libraries, redis-py and valkey-py: their clients and URLs, and how to connect as they do.

A store makes connections of its own, of the client's class and with the client's settings (address, password, TLS,
Sentinel, ...): the library connects and logs in; what is said afterwards is interlock's own.
"""

import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
import math
from importlib import import_module
from typing import Any, NamedTuple, Protocol
from urllib.parse import SplitResult, parse_qsl, urlencode, urlunsplit

from interlock._redis.clusterurl import client_of_cluster
from interlock._redis.libraries import is_async, is_cluster, library_of
from interlock._redis.limit import MOST
from interlock._redis.message import unreachable
from interlock._redis.options import SECONDS, SENTINEL, TLS, is_secure, options_of
from interlock.core.errors import InvalidArgument, LockError, StoreError
from interlock.core.redaction import described, masked, why

GIVEN = "interlock_max_connections"  # the attribute of a client that keeps what its URL says
UNSAID = (100, 1 << 31)  # what the libraries take where nobody has said how many connections there may be
IO_TIMEOUT = 2.0  # seconds to wait for a reply, unless the client says otherwise


class ConnectionFactory(Protocol):
    """How to make a connection, and what to expect of it."""

    @property
    def io_timeout(self) -> float:
        """Seconds to wait for a reply."""

    @property
    def where(self) -> str:
        """The address, for messages."""

    @property
    def choices(self) -> int:
        """How many servers to try in turn, one with each `new_connection`."""

    @property
    def nodes(self) -> Any:
        """What reads the map of a cluster when it is asked; None for a single server."""

    def serves(self, connection: Any) -> bool:
        """Tell whether a connection leads to a server that still takes part."""

    def new_connection(self, io_timeout: float | None = None) -> Any:
        """Return a connection that is not connected yet.

        Args:
            io_timeout: seconds for each answer while it logs in; None for the usual.
        """


class OneServer(NamedTuple):
    """How to make a connection.

    Attributes:
        make: the library's class of connections.
        settings: its arguments.
        io_timeout: seconds to wait for a reply.
        where: the address, for messages.
        client: the client that it was taken from; kept so that what the settings refer to stays.
        most: so many connections at once.
        choices, nodes: as in `ConnectionFactory`.
    """

    make: Any
    settings: dict[str, Any]
    io_timeout: float
    where: str
    client: Any
    most: int = MOST
    choices: int = 1
    nodes: Any = None

    def serves(self, connection: Any) -> bool:
        """As `ConnectionFactory.serves`."""
        return True

    def __repr__(self) -> str:
        return f"<OneServer for {self.where}>"  # the settings have passwords

    def new_connection(self, io_timeout: float | None = None) -> Any:
        """As `ConnectionFactory.new_connection`."""
        names = () if io_timeout is None else ("socket_timeout", "socket_connect_timeout")
        limits = {name: min(io_timeout or 0.0, self.settings.get(name) or math.inf) for name in names}
        connection = self.make(**{**self.settings, **limits})
        driver_info = getattr(connection, "driver_info", None)
        if driver_info is not None:
            # The library looks for its own version on the disk for each connection, which takes milliseconds.
            self.settings.setdefault("driver_info", driver_info)
        return connection


def factory_of(client: Any, tasks: bool) -> OneServer:
    """Return how `client` makes its connections."""
    pool = client.connection_pool
    return factory(pool.connection_class, dict(pool.connection_kwargs), client, tasks)


def most_of(client: Any) -> int:
    """Return how many connections to a server a client may have, if anybody has said so."""
    given = getattr(client, GIVEN, None)
    if given is None:
        if is_cluster(client):
            settings = getattr(client, "connection_kwargs", None) or client.nodes_manager.connection_kwargs
            given = settings.get("max_connections")
        else:
            given = getattr(client.connection_pool, "max_connections", None)
        if given in UNSAID:
            given = None
    return given or MOST


def factory(make: Any, settings: dict[str, Any], client: Any, tasks: bool) -> OneServer:
    """Return how to make connections of a class, without what only the library's own calls need."""
    library = make.__module__.partition(".")[0]
    io_timeout = settings.get("socket_timeout") or IO_TIMEOUT
    settings["socket_timeout"] = io_timeout
    settings["socket_connect_timeout"] = min(settings.get("socket_connect_timeout") or io_timeout, io_timeout)
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
    return OneServer(make, settings, io_timeout, _where(settings), client, most_of(client))


def beside(factory: Any, where: str, io_timeout: float) -> OneServer:
    """Return how to connect, as to one server, to another one of the same group.

    Args:
        factory: how to connect to the one.
        where: the other's host and port.
        io_timeout: seconds to wait for it.
    """
    host, _, port = where.rpartition(":")
    limits = {"socket_timeout": io_timeout, "socket_connect_timeout": io_timeout}
    settings = {**factory.settings, **limits, "host": host, "port": int(port)}
    make = factory.make
    if settings.pop("path", None) is not None:
        make = import_module(make.__module__).Connection
    if settings.pop("connection_pool", None) is not None:  # its class asks Sentinel: take the one that it is made of
        make = next(each for each in make.__mro__ if "Sentinel" not in each.__name__)
    return OneServer(make, settings, io_timeout, f"the Redis server at {where}", factory.client)


def _where(settings: dict[str, Any]) -> str:
    if "path" in settings:
        return f"the Redis server at {settings['path']}"
    pool = settings.get("connection_pool")
    if pool is not None and hasattr(pool, "service_name"):
        return f"the Redis server that Sentinel calls {pool.service_name!r}"
    return f"the Redis server at {settings.get('host', 'localhost')}:{settings.get('port', 6379)}"


def checked_client(client: Any, tasks: bool) -> Any:
    """Return `client` if a store can be made of it, in the colour asked for.

    Raises:
        InvalidArgument: it is no client, or of the other colour.
    """
    library = library_of(client) or "redis"
    if not hasattr(client, "connection_pool") and not is_cluster(client):
        raise InvalidArgument(f"{described(client)} is no client of {library}: give one like {library}.Redis(...)")
    if is_async(client) and not tasks:
        raise InvalidArgument(f"{described(client)} is a client of asyncio: give it to interlock.aconnect()")
    if tasks and not is_async(client):
        raise InvalidArgument(
            f"{described(client)} would block the event loop: give aconnect() a client of asyncio, or give it to "
            f"connect()"
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
        url: redis://, rediss://, valkey://, valkeys://, unix://, redis+sentinel:// or redis+cluster:// and so on.
        tasks: True for asyncio.

    Raises:
        InvalidArgument: the URL makes no sense to the library, or has an option that is not known.
    """
    library = library_for(url.scheme)
    _check_quoting(url)
    _check_socket(url)
    options = options_of(url)
    client = _client_of(url, library, tasks)
    if "max_connections" in options:
        setattr(client, GIVEN, int(options["max_connections"]))
    return client


def _client_of(url: SplitResult, library: str, tasks: bool) -> Any:
    root = import_module(f"{library}.asyncio" if tasks else library)
    base, _, kind = url.scheme.partition("+")
    plain = urlunsplit(url._replace(scheme=_scheme(base, library)))
    if "://" not in plain:
        plain = plain.replace(":", "://", 1)  # a path without a host
    try:
        if kind == "sentinel":
            return _of_sentinel(url, library, tasks)
        if kind == "cluster":
            return client_of_cluster(url, _scheme(base, library), library, tasks, _timeout(url))
        client = getattr(root, library.capitalize()).from_url(plain, **_timeout(url))
        factory_of(client, tasks).new_connection()  # not connected: it only judges the settings
        return client
    except LockError:
        raise
    except Exception as error:
        if kind != "cluster" or isinstance(error, (ValueError, TypeError)):
            reason = why(error, plain)
        else:  # a client of a cluster connects at once
            raise unreachable(f"the Redis cluster at {url.netloc.rpartition('@')[2]}", error) from error
    # Not while the error is handled: its own text may show the password.
    raise InvalidArgument(f"{masked(plain)!r} is no URL of a Redis server: {reason}")


def _check_quoting(url: SplitResult) -> None:
    """Refuse a password with / ? # or @ in it, unquoted: its first part would be taken for a port and shown."""
    query = url.query.partition("@")
    if url.netloc and ("@" in url.path + url.fragment or (query[1] and "=" not in query[0])):
        given = url.geturl()
        raise InvalidArgument(f"{masked(given)!r} is no URL of a Redis server: {why(ValueError(), given)}")


def _check_socket(url: SplitResult) -> None:
    """Refuse unix://folder/socket: the library would take the folder for a host and leave it out."""
    host = url.netloc.rpartition("@")[2]
    if url.scheme == "unix" and host not in ("", "localhost"):
        shown = masked(url.geturl())
        meant = "" if "***" in shown else f"; did you mean unix:///{host}{url.path}?"
        raise InvalidArgument(f"{shown!r}: write three slashes and the path of the socket{meant}")


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
    """Return a client that asks Sentinel: redis+sentinel://[user:password@]host[:port][,host…]/service[/db]?options."""
    where = ".asyncio" if tasks else ""
    module = import_module(f"{library}{where}.sentinel")
    service, _, db = url.path.strip("/").partition("/")
    if not service:
        raise InvalidArgument(
            "a Sentinel URL names the service: redis+sentinel://host:26379,host2:26379/mymaster[/db]"
        )
    login, _, hosts = url.netloc.rpartition("@")
    options = options_of(url)
    secure = is_secure(url.scheme)
    settings = _settings_of(url, f"{login}@" if login else "", library, where)
    if db:
        settings.setdefault("db", int(db))
    io_timeout = {name: settings[name] for name in SECONDS if name in settings}
    of_tls = {name: settings.pop(name) for name in TLS if name in settings}
    asking: dict[str, Any] = dict(io_timeout)
    for name in ("username", "password"):
        if f"sentinel_{name}" in options:
            asking[name] = options[f"sentinel_{name}"]
    if options.get("sentinel_ssl", "true" if secure else "false") == "true":
        asking |= {"ssl": True, **of_tls}
    if secure:
        settings |= {"ssl": True, **of_tls}
    sentinel = module.Sentinel([_address(host) for host in hosts.split(",")], sentinel_kwargs=asking)
    client = sentinel.master_for(service, **settings)
    factory_of(client, tasks).new_connection()  # not connected: it only judges the settings
    return client


def _settings_of(url: SplitResult, login: str, library: str, where: str) -> dict[str, Any]:
    """Return login and options of a Sentinel URL as the library reads those of a plain one."""
    options = [pair for pair in parse_qsl(url.query) if pair[0] not in SENTINEL]
    plain = SplitResult(_scheme("redis", library), f"{login}server", "", urlencode(options), "")
    settings: dict[str, Any] = import_module(f"{library}{where}.connection").parse_url(urlunsplit(plain))
    settings.pop("host", None)
    return _timeout(url) | settings


def _address(text: str) -> tuple[str, int]:
    """Return host and port of a Sentinel: host, host:port, [::1]:port."""
    parts = SplitResult("", text, "", "", "")
    return parts.hostname or "localhost", parts.port or 26379
