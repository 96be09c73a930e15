"""The client libraries, redis-py and valkey-py: how to connect as their clients do.

A store makes connections of its own, of the client's class and with the client's settings (address, password, TLS,
Sentinel, ...): the library connects and logs in; what is said afterwards is interlock's own.
"""

import encodings.idna  # noqa: F401 - else the first host name loads it, which hangs in a child forked meanwhile
import math
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from interlock._redis.libraries import is_async, is_cluster, library_of
from interlock._redis.limit import MOST
from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described

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
