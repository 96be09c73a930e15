"""A Cluster with a proxy before each of its nodes."""

from binascii import crc_hqx
from typing import Any

from tests.servers.cluster import SLOTS, RedisCluster
from tests.servers.home import Closing, eventually
from tests.servers.proxy import Proxy
from tests.servers.redis_server import Kind, RedisServer


class DistantCluster(Closing):
    """A Cluster whose nodes announce the addresses of proxies, so that all traffic goes through them.

    When a node fails, the others still serve their slots (`cluster-require-full-coverage no`).

    Args:
        delay: seconds by which each reply is late.
        nodes: the number of nodes.
        kind: "valkey" or "redis".

    Attributes:
        cluster: the cluster.
        proxies: the proxy of each node.

    Raises:
        Missing, NotStarted: as for `RedisServer`.
    """

    def __init__(self, delay: float, nodes: int = 3, kind: Kind = "valkey") -> None:
        self.cluster = RedisCluster(nodes, kind)
        self.proxies: list[Proxy] = []
        try:
            for node in self.cluster.nodes:
                self.proxies.append(Proxy(node.host, node.port))
                node.command("CONFIG", "SET", "cluster-announce-port", self.proxies[-1].port)
                node.command("CONFIG", "SET", "cluster-require-full-coverage", "no")
            eventually(self._is_told, lambda: None, "proxies that all nodes tell of")
        except BaseException:
            self.close()
            raise
        for proxy in self.proxies:
            proxy.delay(delay)

    def _is_told(self) -> bool:
        ports = {proxy.port for proxy in self.proxies}
        return all(
            {int(entry[2][1]) for entry in _slots(node)} == ports and len(_slots(node)) == len(ports)
            for node in self.cluster.nodes
        )

    @property
    def url(self) -> str:
        """The URL for clients."""
        return f"redis+cluster://{self.proxies[0].host}:{self.proxies[0].port}"

    def slots_of(self, node: RedisServer) -> tuple[int, int]:
        """Return the first and the last slot that a node serves."""
        share = -(-SLOTS // len(self.cluster.nodes))
        first = self.cluster.nodes.index(node) * share
        return first, min(first + share, SLOTS) - 1

    def node_of(self, key: str) -> RedisServer:
        """Return the node that serves a key."""
        tag = key.partition("{")[2].partition("}")[0] or key
        slot = crc_hqx(tag.encode(), 0) % SLOTS
        return next(node for node in self.cluster.nodes if self.slots_of(node)[0] <= slot <= self.slots_of(node)[1])

    def close(self) -> None:
        """End all; safe to repeat."""
        for proxy in self.proxies:
            proxy.close()
        self.proxies.clear()
        self.cluster.close()


def _slots(node: RedisServer) -> list[Any]:
    slots: list[Any] = node.command("CLUSTER", "SLOTS")
    return slots
