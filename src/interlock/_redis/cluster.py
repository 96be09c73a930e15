"""A cluster, for threads: which node a name lives on, and what to do when it moves.

The client library makes the connections; what is said to the nodes is said as to a single server.
Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import random
import threading
from collections.abc import Callable
from typing import Any

from interlock._redis.errors import NoRoom, Passing
from interlock._redis.map import Map
from interlock._redis.message import Denied, Message, Unreachable
from interlock._redis.pool import Pool
from interlock._redis.routing import Directions, Nodes, Reading
from interlock._redis.slots import SLOTS, Address
from interlock.core.errors import StoreError
from interlock.runtime.sync import run

CALM = 1.0  # seconds between two times that all who wait are told to look


class AnyNode:
    """As a OneServer: how to connect to whichever node is there; messages reach all of them.

    Args:
        map: the cluster.
        nodes: reads the map anew when it is asked.
    """

    def __init__(self, map: Map, nodes: Nodes) -> None:
        self._map = map
        self.nodes: Nodes | None = nodes
        self.io_timeout = map.io_timeout
        self.where = "the Redis cluster"
        self._next = random.randrange(SLOTS)

    @property
    def choices(self) -> int:
        """As `ConnectionFactory.choices`."""
        return min(2, len(self._map.addresses) or 1)

    def new_connection(self, io_timeout: float | None = None) -> Any:
        """As `ConnectionFactory.connection`: each time to another node."""
        self._next += 1
        addresses = self._map.addresses or [self._map.address_of("")]
        return self._map.factory_for(addresses[self._next % len(addresses)]).new_connection(io_timeout)

    def serves(self, connection: Any) -> bool:
        """As `ConnectionFactory.serves`: a node that has left the cluster, or is about to, hears nothing."""
        return (connection.host, int(connection.port)) in self._map.addresses


class ThreadNodes(Nodes):
    """As `Nodes`, for threads."""

    def __init__(self, map: Map, pool_of: Callable[[Address], Any]) -> None:
        super().__init__(map, pool_of)
        self.reset()

    def ask(self, reading: Reading) -> list[str]:
        """Read the map; whoever comes meanwhile takes what was read."""
        if not self._lock.acquire(timeout=self._map.io_timeout):
            raise Unreachable("the Redis cluster does not say where its slots are: look at CLUSTER INFO")
        try:
            return run(self._read(reading))
        finally:
            self._lock.release()

    def reset(self) -> None:
        """In a forked child: another thread of the parent may have the lock."""
        self._lock = threading.RLock()


class ClusterPool:
    """The connections to the nodes of a cluster, for threads.

    Args:
        map: the cluster.
    """

    follows = True

    def __init__(self, map: Map) -> None:
        self._map = map
        self._pools: dict[Address, Pool] = {}
        self._closed = False
        self.nodes = ThreadNodes(map, self._pool)
        self._directions = Directions(map, self.nodes, self._pool)
        self.batches = map.batches
        self.node_of = map.address_of
        self.target_of = map.target_of
        self.once = self._directions.once
        self._looking = threading.Lock()

    def at(self, node: Address) -> Pool:
        """Return the connections to a node."""
        return self._pool(node)

    def look_again_soon(self) -> None:
        """Fetch the map anew, and let nobody wait for it: a node that is dead may be asked first."""
        if self._looking.acquire(blocking=False):
            try:
                threading.Thread(target=self._look_aside, name="interlock-map", daemon=True).start()
            except RuntimeError:
                self._looking.release()  # the interpreter is shutting down

    def _look_aside(self) -> None:
        try:
            self.nodes.ask(Reading(self._map.version))
        except StoreError:
            pass  # whoever asks next says so
        finally:
            self._looking.release()

    def _pool(self, address: Address) -> Pool:
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        pool = self._pools.get(address)
        if pool is None:
            pool = self._pools.setdefault(address, Pool(self._map.factory_for(address)))
        return pool

    def exchange(self, command: bytes, line: str, owner: str | None) -> Any:
        """As `Pool.exchange`."""
        return self.ask(Message(command, line, owner))

    @property
    def has_late(self) -> bool:
        """As `Pool.has_late`, of any node."""
        return any(pool.has_late for pool in list(self._pools.values()))

    def leave_late(self, owner: str, command: bytes) -> bool:
        """As `Pool.leave_late`, on all nodes."""
        return any([pool.leave_late(owner, command) for pool in list(self._pools.values())])  # noqa: C419 - all of them

    def ask(self, message: Message) -> Any:
        """As `Pool.ask`, on the node that the message's line lives on."""
        version = self._map.version
        address = None
        try:
            if not version:
                self.nodes.ask(Reading(version))
            address = self._map.address_of(message.line)
            return self._pool(address).ask(message)
        except (NoRoom, Denied):
            raise
        except (Passing, Unreachable) as error:
            failure = error
        return run(self._directions.follow(message, address, version, failure))

    def rest(self) -> None:
        """As `Pool.rest`, for all nodes."""
        for pool in list(self._pools.values()):
            pool.rest()

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for pool in list(self._pools.values()):
            pool.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        self.nodes.reset()
        self._looking = threading.Lock()
        for pool in self._pools.values():
            pool.reset()
