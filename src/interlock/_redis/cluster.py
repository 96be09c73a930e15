"""A cluster, for threads: which node a name lives on, and what to do when it moves.

The client library makes the connections; what is said to the nodes is said as to a single server.
Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import random
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from interlock._redis.clients import IO_TIMEOUT, OneServer, factory
from interlock._redis.errors import NoRoom, Passing, Redirected
from interlock._redis.message import Denied, Message, Unreachable
from interlock._redis.pool import Pool
from interlock._redis.routing import Directions, Nodes, Reading
from interlock._redis.slots import SLOTS, Address, Shares, host_or, slot_of
from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.runtime.sync import run

CALM = 1.0  # seconds between two times that all who wait are told to look


class Map:
    """Where the names of a cluster live; the part that both colours share.

    Args:
        client: the library's client of the cluster.
        tasks: True for asyncio.
        starts: nodes to ask for the map, beside those that the client knows.

    Attributes:
        version: how often the map was read.
        on_change: called, in any thread, after the map has changed.
    """

    def __init__(self, client: Any, tasks: bool, starts: Sequence[Address] = ()) -> None:
        self.client = client
        self._tasks = tasks
        nodes = [*(getattr(client, "startup_nodes", None) or ()), *client.nodes_manager.startup_nodes.values()]
        known = [(node.host, int(node.port)) for node in nodes if node.host]
        self._starts = list(dict.fromkeys([*starts, *known]))
        self._announced: Callable[[Address], Address] | None = getattr(client.nodes_manager, "address_remap", None)
        self._make, self._settings = self._connections(nodes[-1])
        self.io_timeout: float = self._settings.get("socket_timeout") or IO_TIMEOUT
        self.on_change: Callable[[], object] = _nobody_listens
        self.version = 0
        self._shares: Shares = []
        self._owners: list[Address | None] = [None] * SLOTS
        self._answered: Address | None = None
        self.addresses: list[Address] = []
        self._untold = False
        self._told_at = 0.0

    def _connections(self, node: Any) -> tuple[Any, dict[str, Any]]:
        """Return the class of connections to nodes, and its arguments."""
        if self._tasks:
            return node.connection_class, node.connection_kwargs
        lend = getattr(self.client, "get_valkey_connection", None) or self.client.get_redis_connection
        pool = lend(node).connection_pool
        return pool.connection_class, pool.connection_kwargs

    def factory_for(self, address: Address) -> OneServer:
        """Return how to connect to a node."""
        settings = {**self._settings, "host": address[0], "port": address[1]}
        return factory(self._make, settings, self.client, self._tasks)

    def address_of(self, line: str) -> Address:
        """Return the address of the node that a line lives on; of any node for no line.

        Raises:
            Passing: no node has it now.
        """
        if not line:
            return random.choice(self.addresses or self._starts)
        if line[0] == "@":
            host, _, port = line[1:].rpartition(":")
            return host, int(port)
        address = self._owners[slot_of(line)]
        if address is None:
            raise Passing(f"no node of the cluster has {line!r} now; look at CLUSTER INFO")
        return address

    def nodes(self) -> list[str]:
        """Return what stands for each node that has keys, in the place of a line."""
        return [f"@{host}:{port}" for host, port in self.addresses]

    def remap(self, address: Address) -> Address:
        """Return where a node is reached from here that announces this address."""
        return address if self._announced is None else self._announced(address)

    def target_of(self, redirection: Redirected, asked: Address) -> Address:
        """Return the node that another one points at."""
        host, port = redirection.address
        return self.remap((host_or(host, asked[0]), port))

    def candidates(self, first: Address | None, last: Address | None) -> list[Address]:
        """Return whom to ask for the map, in this order.

        A node that is in no map any more is not asked: what it knows may be old.

        Args:
            first: who knows best, if anybody.
            last: who did not answer, if anybody.
        """
        known = random.sample(self.addresses, len(self.addresses))
        best = [first] if first is not None else [self._answered] if self._answered in known else []
        order: dict[Address, None] = dict.fromkeys([*best, *known, *self._starts])
        if last in order:
            order.pop(last)
            order[last] = None
        return list(order)

    def install(self, shares: Shares, answered: Address) -> None:
        """Take a map that was read; tell those who listen, in calm, if it is another one."""
        if shares != self._shares:
            owners: list[Address | None] = [None] * SLOTS
            for first, last, address in shares:
                owners[first : last + 1] = [address] * (last + 1 - first)
            self._shares, self._owners = shares, owners
            self.addresses = sorted({address for _, _, address in shares})
            self._untold = self._untold or self.version > 0
        self._answered = answered
        self.version += 1
        if self._untold and monotonic() - self._told_at >= CALM:
            self._untold, self._told_at = False, monotonic()
            self.on_change()

    def heard_by(self, subscription: Any) -> Any:
        """Let a subscription know of changes; return it."""
        self.on_change = subscription.map_changed
        return subscription

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call: those of one name."""
        groups: dict[str, list[Claim]] = {}
        for claim in claims:
            groups.setdefault(claim.spec.key, []).append(claim)
        return [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]


def _nobody_listens() -> None:
    """Take a change that concerns nobody."""


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
