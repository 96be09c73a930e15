"""A private Redis or Valkey Cluster, for tests and benchmarks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from interlock.testing.servers.home import Home, Port, eventually
from interlock.testing.servers.redis_server import Kind, RedisServer

SLOTS = 16_384


class RedisCluster:
    """A Cluster of masters without replicas on free ports of 127.0.0.1; use it as a context manager.

    Args:
        nodes: how many.
        kind: "valkey" or "redis".

    Attributes:
        nodes: the servers.

    Raises:
        Missing, NotStarted: as for `RedisServer`.
    """

    def __init__(self, nodes: int = 3, kind: Kind = "valkey") -> None:
        self._home = Home("cluster")
        self._buses: list[Port] = []
        self.nodes: list[RedisServer] = []
        try:
            for _ in range(nodes):
                self._add_node(kind)
            self._join()
        except BaseException:
            self.close()
            raise

    def _add_node(self, kind: Kind) -> None:
        self._buses.append(Port())
        config = {
            "cluster-enabled": "yes",
            "cluster-port": str(self._buses[-1].number),
            "cluster-config-file": "nodes.conf",
            "cluster-node-timeout": "2000",
        }
        self.nodes.append(RedisServer(kind, config=config, home=self._home))

    def _join(self) -> None:
        share = -(-SLOTS // len(self.nodes))
        for number, node in enumerate(self.nodes):
            first = number * share
            node.command("CLUSTER", "ADDSLOTSRANGE", first, min(first + share, SLOTS) - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
            self.nodes[0].command("CLUSTER", "MEET", node.host, node.port, bus.number)
        self.until_whole()

    def until_whole(self) -> None:
        """Wait until all nodes agree that all slots are served, e.g. after one was restarted."""
        eventually(self._is_whole, lambda: None, "a cluster")

    def _is_whole(self) -> bool:
        return all(
            "cluster_state:ok" in (info := node.command("CLUSTER", "INFO"))
            and f"cluster_known_nodes:{len(self.nodes)}" in info
            and len(node.command("CLUSTER", "SLOTS")) >= len(self.nodes)
            for node in self.nodes
        )

    @property
    def url(self) -> str:
        """How clients connect: `redis+cluster://127.0.0.1:port`."""
        return f"redis+cluster://{self.nodes[0].host}:{self.nodes[0].port}"

    def node_of(self, key: str) -> RedisServer:
        """Return the node that serves a key."""
        slot = self.nodes[0].command("CLUSTER", "KEYSLOT", key)
        ports = [int(entry[2][1]) for entry in self._slots() if entry[0] <= slot <= entry[1]]
        return next(node for node in self.nodes if node.port in ports)

    def _slots(self) -> Sequence[Any]:
        slots: Sequence[Any] = self.nodes[0].command("CLUSTER", "SLOTS")
        return slots

    def move(self, key: str) -> RedisServer:
        """Move the slot of a key, with all that is in it, to another node, as resharding does; return that node."""
        with self.moving(key) as target:
            return target

    @contextmanager
    def moving(self, key: str) -> Iterator[RedisServer]:
        """Move the slot of a key; during the body its keys are at the new node, which not everybody knows yet.

        Clients are told to ask there (ASK), and to try again if they want keys of which some do not exist (TRYAGAIN).
        """
        slot = self.nodes[0].command("CLUSTER", "KEYSLOT", key)
        source = self.node_of(key)
        target = next(node for node in self.nodes if node is not source)
        source_id, target_id = (node.command("CLUSTER", "MYID") for node in (source, target))
        target.command("CLUSTER", "SETSLOT", slot, "IMPORTING", source_id)
        source.command("CLUSTER", "SETSLOT", slot, "MIGRATING", target_id)
        self._migrate(slot, source, target)
        try:
            yield target
        finally:
            self._migrate(slot, source, target)
            for node in (target, source, *self.nodes):
                node.command("CLUSTER", "SETSLOT", slot, "NODE", target_id)

    def _migrate(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        while keys := source.command("CLUSTER", "GETKEYSINSLOT", slot, 100):
            source.command("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *keys)

    def close(self) -> None:
        """End all nodes and remove their folder; safe to repeat."""
        for node in self.nodes:
            node.close()
        for bus in self._buses:
            bus.close()
        self._home.close()

    def __enter__(self) -> "RedisCluster":
        return self

    def __exit__(self, *why: object) -> None:
        self.close()
