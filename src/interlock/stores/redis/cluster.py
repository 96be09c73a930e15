"""A cluster, for threads: which node a name lives on, and what to do when it moves.

The client library knows the map of the cluster; what is said to the nodes is said as to a single server.
Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import random
from collections.abc import Iterator, Sequence
from time import monotonic, sleep
from typing import Any

from interlock.claims import Claim
from interlock.errors import StoreError
from interlock.stores.redis.clients import IO_TIMEOUT, Recipe, recipe
from interlock.stores.redis.message import Message, Unreachable, unreachable
from interlock.stores.redis.problems import Passing, Redirected
from interlock.stores.redis.resp import ended_by
from interlock.stores.redis.wire import Wire

PAUSE = 0.05  # seconds between two looks while the cluster changes
Address = tuple[str, int]


class Map:
    """Where the names of a cluster live; the part that both colours share.

    Args:
        client: the library's client of the cluster.
        tasks: True for asyncio.
    """

    def __init__(self, client: Any, tasks: bool) -> None:
        self.client = client
        self._tasks = tasks
        settings = getattr(client, "connection_kwargs", None) or {}
        self.patience: float = settings.get("socket_timeout") or IO_TIMEOUT

    def address_of(self, line: str) -> Address:
        """Return the address of the node that a line lives on; of any node for no line.

        Raises:
            Passing: no node has it now.
        """
        if line.startswith("@"):
            host, _, port = line[1:].rpartition(":")
            return host, int(port)
        try:
            node = self.client.get_node_from_key(line) if line else random.choice(self.client.get_primaries())
            return node.host, int(node.port)
        except Exception as error:
            raise Passing(f"no node of the cluster has {line!r} now: {error}; look at CLUSTER INFO") from error

    def nodes(self) -> list[str]:
        """Return what stands for each node that has keys, in the place of a line."""
        return [f"@{node.host}:{node.port}" for node in self.client.get_primaries()]

    def recipe_for(self, address: Address) -> Recipe:
        """Return how to connect to a node."""
        node = self.client.get_default_node()
        if self._tasks:
            make, settings = node.connection_class, dict(node.connection_kwargs)
        else:
            pool = self.client.get_redis_connection(node).connection_pool
            make, settings = pool.connection_class, dict(pool.connection_kwargs)
        settings["host"], settings["port"] = address
        return recipe(make, settings, self.client, self._tasks)

    def batches(self, claims: Sequence[Claim], most: int) -> list[Sequence[Claim]]:
        """Return which claims may be renewed by one call: those of one name."""
        groups: dict[str, list[Claim]] = {}
        for claim in claims:
            groups.setdefault(claim.terms.key, []).append(claim)
        return [group[start : start + most] for group in groups.values() for start in range(0, len(group), most)]


def tries(seconds: float) -> Iterator[bool]:
    """Yield while another try makes sense, for so many seconds; True after the first one.

    While a slot moves, its nodes refuse what needs all keys of a name at once: that is waited out.
    """
    started = monotonic()
    yield False
    while monotonic() - started < seconds:
        yield True


class AnyNode:
    """As a Recipe: how to connect to whichever node is there; messages reach all of them.

    Args:
        map: the cluster.
    """

    def __init__(self, map: Map) -> None:
        self._map = map
        self.patience = map.patience
        self.where = "the Redis cluster"

    def connection(self, patience: float | None = None) -> Any:
        """As `Dialer.connection`."""
        return self._map.recipe_for(self._map.address_of("")).connection(patience)


class ClusterWire:
    """The connections to the nodes of a cluster, for threads.

    Args:
        map: the cluster.
    """

    def __init__(self, map: Map) -> None:
        self._map = map
        self._wires: dict[Address, Wire] = {}
        self._closed = False
        self.nodes = map.nodes
        self.batches = map.batches

    def _wire(self, address: Address) -> Wire:
        if self._closed:
            raise StoreError("this connection was closed: connect again")
        wire = self._wires.get(address)
        if wire is None:
            wire = self._wires.setdefault(address, Wire(self._map.recipe_for(address)))
        return wire

    def exchange(self, start: bytes, line: str, id: str) -> Any:
        """As `Wire.exchange`."""
        return self.ask(Message(ended_by(start, id), line, id))

    def ask(self, message: Message) -> Any:
        """As `Wire.ask`, on the node that the message's line lives on."""
        address, asking = None, False
        for again in tries(self._map.patience):
            try:
                if address is None:
                    address = self._map.address_of(message.line)
                return self._wire(address).ask(message, asking=asking)
            except Redirected as error:
                address, asking, failure = error.address, error.asking, error
                if not asking:
                    self._look_again()
            except (Unreachable, Passing) as error:
                if again and isinstance(error, Unreachable):
                    raise  # the map was fetched anew, and the node is not there
                address, asking, failure = None, False, error  # type: ignore[assignment]
                sleep(PAUSE)
                self._look_again()
        raise failure

    def _look_again(self) -> None:
        try:
            self._map.client.nodes_manager.initialize()
        except Exception as error:
            raise unreachable("the Redis cluster", error) from error

    def close(self) -> None:
        """Close all connections."""
        self._closed = True
        for wire in self._wires.values():
            wire.close()

    def reset(self) -> None:
        """In a forked child: forget the parent's connections."""
        for wire in self._wires.values():
            wire.reset()
