"""A private Redis or Valkey Cluster, for tests and benchmarks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.servers.home import Closing, Home, Port, eventually
from tests.servers.redis_server import Kind, RedisServer

SLOTS = 16_384


class RedisCluster(Closing):
    """A Cluster of masters without replicas on free ports of 127.0.0.1; use it as a context manager.

    Args:
        nodes: the number of nodes.
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
        self._removed: list[RedisServer] = []
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
            "cluster-allow-replica-migration": "no",  # a node without slots stays a master
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
        """Wait until all nodes agree that all slots are served, for example after a restart of one."""
        eventually(self._is_whole, lambda: None, "a cluster")

    def _is_whole(self) -> bool:
        return all(
            "cluster_state:ok" in (info := node.command("CLUSTER", "INFO"))
            and f"cluster_known_nodes:{len(self.nodes)}" in info
            and sum(last - first + 1 for first, last, *_ in node.command("CLUSTER", "SLOTS")) == SLOTS
            for node in self.nodes
        )

    @property
    def url(self) -> str:
        """The URL for clients: `redis+cluster://127.0.0.1:port`."""
        return f"redis+cluster://{self.nodes[0].host}:{self.nodes[0].port}"

    def node_of(self, key: str) -> RedisServer:
        """Return the node that serves a key."""
        slot = self.nodes[0].command("CLUSTER", "KEYSLOT", key)
        ports = [int(entry[2][1]) for entry in self._slots() if entry[0] <= slot <= entry[1]]
        return next(node for node in self.nodes if node.port in ports)

    def _slots(self) -> Sequence[Any]:
        slots: Sequence[Any] = self.nodes[0].command("CLUSTER", "SLOTS")
        return slots

    def move(self, key: str, target: RedisServer | None = None) -> RedisServer:
        """Move the slot of a key with all its keys to another node, like resharding; return that node."""
        with self.migrating(key, target) as move:
            return move.target

    @contextmanager
    def moving(self, key: str) -> Iterator[RedisServer]:
        """Move the slot of a key; during the block its keys are at the new node, but the slot is the old one's.

        The old node answers ASK, and TRYAGAIN to requests for several keys of which some do not exist.
        """
        with self.migrating(key) as move:
            move.rest()
            yield move.target

    @contextmanager
    def migrating(
        self, key: str, target: RedisServer | None = None, source: RedisServer | None = None
    ) -> Iterator["Migration"]:
        """Let the slot of a key move key by key during the block; the remaining keys move after it."""
        source = source or self.node_of(key)
        target = target or next(node for node in self.nodes if node is not source)
        move = Migration(self.nodes[0].command("CLUSTER", "KEYSLOT", key), source, target)
        move.begin()
        try:
            yield move
        finally:
            move.rest()
            self._give(range(move.slot, move.slot + 1), source, target)

    def _give(self, slots: range, source: RedisServer, target: RedisServer) -> None:
        """Tell all nodes that slots have another owner.

        Wait until all nodes know each other's epochs: if a slot moves before that, an old message can undo the move,
        and its owners then redirect to each other.
        """
        owner = target.command("CLUSTER", "MYID")
        for node in (target, source, *self.nodes):
            with node.wire() as wire:
                for slot in slots:
                    wire.ask("CLUSTER", "SETSLOT", slot, "NODE", owner)
        eventually(self._agrees, lambda: None, "nodes that agree")

    def _agrees(self) -> bool:
        epochs = set()
        for node in self.nodes:
            views = [line.split() for line in node.command("CLUSTER", "NODES").splitlines()]
            epochs.add(frozenset((view[0], view[6]) for view in views))
        return len(epochs) == 1

    def remove(self, node: RedisServer) -> None:
        """Move all slots of a node to another one, let the others forget it, and reset it; it stays up, alone."""
        rest = [each for each in self.nodes if each is not node]
        for first, last, owner, *_ in self._slots():
            if int(owner[1]) == node.port:
                for slot in range(first, last + 1):
                    if node.command("CLUSTER", "COUNTKEYSINSLOT", slot):
                        move = Migration(slot, node, rest[0])
                        move.begin()
                        move.rest()
                self._give(range(first, last + 1), node, rest[0])
        id = node.command("CLUSTER", "MYID")
        for each in rest:
            each.command("CLUSTER", "FORGET", id)
        self.nodes = rest
        self._removed.append(node)
        node.command("CLUSTER", "RESET", "HARD")
        self.until_whole()

    def add(self) -> RedisServer:
        """Add a node without slots; return it."""
        self._add_node(self.nodes[0].kind)
        node = self.nodes[-1]
        self.nodes[0].command("CLUSTER", "MEET", node.host, node.port, self._buses[-1].number)
        self.until_whole()
        return node

    def close(self) -> None:
        """End all nodes and remove their folder; safe to repeat."""
        for node in [*self.nodes, *self._removed]:
            node.close()
        for bus in self._buses:
            bus.close()
        self._home.close()


class Migration:
    """A slot that moves key by key.

    Args:
        slot: the slot.
        source, target: the nodes between which it moves.

    Attributes:
        slot, source, target: as given.
    """

    def __init__(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        self.slot = slot
        self.source = source
        self.target = target

    def begin(self) -> None:
        """Announce the migration to both nodes: from here on the source answers ASK for keys that it lacks."""
        source_id, target_id = (node.command("CLUSTER", "MYID") for node in (self.source, self.target))
        self.target.command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", source_id)
        self.source.command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", target_id)

    def rest(self) -> None:
        """Move all remaining keys."""
        while keys := self.source.command("CLUSTER", "GETKEYSINSLOT", self.slot, 100):
            self.source.command("MIGRATE", self.target.host, self.target.port, "", 0, 5000, "KEYS", *keys)
