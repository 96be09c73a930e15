"""The map of a cluster: which node serves which slot, and how to connect to it."""

import random
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from interlock._redis.clients import IO_TIMEOUT, OneServer, factory
from interlock._redis.errors import Passing, Redirected
from interlock._redis.slots import SLOTS, Address, Shares, host_or, slot_of
from interlock.core.claims import Claim

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
        self._announced_at = 0.0

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
            first: the node that knows best, if any.
            last: the node that did not answer, if any.
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
        if self._untold and monotonic() - self._announced_at >= CALM:
            self._untold, self._announced_at = False, monotonic()
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
