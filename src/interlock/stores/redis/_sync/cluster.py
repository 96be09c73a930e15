# Generated from _async/cluster.py by tools/unasync.py; change that one.
"""A Redis cluster: the node of each name, and redirections to other nodes.

All fields of a line are in one key, so while a slot moves key by key, each line is on one node as a whole.
Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

import random
from collections.abc import Callable
from contextlib import suppress

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.failures import Denied, NoAnswer, NoRoom, TransientRefusal, Unreachable, closed
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.storekit._sync.listener import Subscription
from interlock.storekit._sync.server_queue import Asks, ServerQueue
from interlock.stores.redis._sync.connection import Dialer
from interlock.stores.redis._sync.queue import RedisQueue, fresh_channel, pool_to
from interlock.stores.redis.errors import Redirected, refusal
from interlock.stores.redis.keys import CLUSTER_SLOTS, Shares, host_or, line_of, shares_of, slot_of
from interlock.stores.redis.resp import RedisCommand, Reply, ReplyError, pack
from interlock.stores.redis.settings import Address, Settings
from interlock.stores.redis.wire import RedisWire, with_source

RETRY_PAUSE = 0.05  # seconds before a failed request is retried
HOPS = 5  # redirections in a row, after which there is a pause before each
ASKING = pack("ASKING")


class Cluster:
    """The connections to the nodes of a cluster; used as a pool.

    Args:
        settings: the settings of its connections.
        wire: the commands.

    Attributes:
        addresses: the nodes that serve slots.
        version: the number of reads of the slot map.
        on_change: called after the map has changed.
        entering: as for `Pool`.
    """

    def __init__(self, settings: Settings, wire: RedisWire) -> None:
        self._settings = settings
        self._wire = wire
        self._pools: dict[Address, Asks[RedisCommand, Reply]] = {}
        self._shares: Shares = []
        self.addresses: list[Address] = []
        self.version = 0
        self.on_change: Callable[[], object] = lambda: None
        self.entering: set[str] = set()
        self.closed = False

    def _pool(self, address: Address) -> Asks[RedisCommand, Reply]:
        if self.closed:
            raise closed()
        pool = self._pools.get(address)
        if pool is None:
            dialer = Dialer(self._settings.at(address))
            made = pool_to(dialer, self._wire)
            made.entering = self.entering
            pool = self._pools.setdefault(address, made)
            dialer.moved = pool.invalidate_connections
        return pool

    def node_of(self, line: str) -> Address:
        """Return the node of a line; any node for "".

        Raises:
            TransientRefusal: no node serves its slot now.
        """
        if not line:
            return random.choice(self.addresses or list(self._settings.nodes))
        if line[0] == "@":
            host, _, port = line[1:].rpartition(":")
            return host, int(port)
        slot = slot_of(line)
        for first, last, address in self._shares:
            if first <= slot <= last:
                return address
        raise TransientRefusal(f"No node of the cluster serves {line!r}. Check CLUSTER INFO.")

    def ask(self, command: RedisCommand, deadline: float, undo: Claim | None = None) -> Reply:
        """Send like `Pool.ask`, on the command's node, following redirections."""
        target: Address | None = None
        asking = False
        hops = 0
        while True:
            version = self.version
            try:
                if not version and command.line[:1] != "@":
                    self.read_map(version)
                address = target or self.node_of(command.line)
                return self._ask_node(address, command, asking, deadline, undo)
            except Redirected as error:
                hops += 1
                asking = error.asking
                target = self._reached(error.address, address)
                if not asking:
                    self.read_map_if_possible(version, target)
                if hops > HOPS:
                    rt.sleep(RETRY_PAUSE)
                if clock.now() > deadline:
                    raise TransientRefusal(str(error)) from error
            except NoAnswer:
                rt.start_background("interlock-map", self.read_map_if_possible, version)
                raise
            except (NoRoom, Denied):
                raise
            except (TransientRefusal, Unreachable):
                target, asking = None, False
                if clock.now() + RETRY_PAUSE > deadline:
                    raise
                rt.sleep(RETRY_PAUSE)
                self.read_map_if_possible(version)

    def _ask_node(
        self, address: Address, command: RedisCommand, asking: bool, deadline: float, undo: Claim | None
    ) -> Reply:
        if not asking:
            return self._pool(address).ask(command, deadline, undo)
        both = RedisCommand(ASKING + with_source(command.data), command.line, 2)
        replies = self._pool(address).ask(both, deadline, undo)
        for reply in replies:
            if isinstance(reply, ReplyError):
                raise refusal(reply, self._settings.at(address).where, command.line)
        return replies[1]

    def _reached(self, announced: tuple[str, int], asked: Address) -> Address:
        address = host_or(announced[0], asked[0]), announced[1]
        return address if self._settings.remap is None else self._settings.remap(address)

    def read_map_if_possible(self, version: int = -1, first: Address | None = None) -> None:
        """Read the map like `read_map` without raising: the next request gets the error."""
        with suppress(StoreError):
            self.read_map(version, first)

    def read_map(self, version: int = -1, first: Address | None = None) -> None:
        """Read the slot map, unless another request has read it after `version`.

        Args:
            version: the version that a failed request used; -1 to read the map in any case.
            first: the node to ask first, if any.

        Raises:
            StoreError: no node returned a map.
        """
        failure: StoreError | None = None
        known = random.sample(self.addresses, len(self.addresses))
        for address in dict.fromkeys([*([] if first is None else [first]), *known, *self._settings.nodes]):
            if version not in (-1, self.version):
                return
            try:
                limit = clock.now() + self._settings.io_timeout / 2
                reply = self._pool(address).ask(RedisCommand(CLUSTER_SLOTS), limit)
            except StoreError as error:
                failure = error
                continue
            shares = shares_of(reply, address[0], self._settings.remap)
            if shares:
                changed = shares != self._shares
                self._shares = shares
                self.addresses = sorted({node for _, _, node in shares})
                self.version += 1
                if changed and self.version > 1:
                    self.on_change()
                return
        raise failure or TransientRefusal(
            "No node of the Redis cluster returned the map of slots. Check CLUSTER INFO."
        )

    def invalidate_connections(self) -> None:
        """Use the present connections for no more requests."""
        for pool in list(self._pools.values()):
            pool.invalidate_connections()

    def close_idle(self) -> None:
        """Close idle connections of all nodes."""
        for pool in list(self._pools.values()):
            pool.close_idle()

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        for pool in list(self._pools.values()):
            pool.close()


class RedisClusterQueue(RedisQueue):
    """The queue of one process on a cluster.

    Args:
        settings: the settings of its connections.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._dialer = Dialer(settings)  # of no node: no Sentinel watches it
        self._redis = RedisWire(settings.where, settings.io_timeout)
        self._cluster = Cluster(settings, self._redis)
        self._cluster.on_change = self._map_changed
        self._address: Address | None = None
        ServerQueue.__init__(self, self._redis, self._cluster, self._subscribe, fresh_channel())

    def _subscribe(self, deadline: float) -> Subscription:
        if not self._cluster.version:
            self._cluster.read_map(0)
        failure: StoreError | None = None
        addresses = self._cluster.addresses
        for address in random.sample(addresses, len(addresses)):
            try:
                subscription = Dialer(self._settings.at(address)).subscribe(self.channel, deadline)
            except Unreachable as error:
                failure = error
                continue
            self._address = address
            subscription.before_confirm = self._see_member
            return subscription
        raise failure or Unreachable("The Redis cluster has no nodes that serve slots. Check CLUSTER INFO.")

    def _see_member(self) -> None:
        """Leave a node that is no longer in the cluster: it confirms subscriptions, but receives no messages."""
        self._cluster.read_map_if_possible()
        if self._address not in self._cluster.addresses:
            self._listener.resubscribe()

    def _map_changed(self) -> None:
        """Wake all waiters; subscribe at another node if the node of the subscription has left."""
        if self._address not in self._cluster.addresses:
            self._listener.resubscribe()
        self._waiters.wake_all()

    def node_of(self, claim: Claim) -> object:
        """Return the node of a claim: the claims of a node are renewed together."""
        try:
            return self._cluster.node_of(line_of(claim.spec.key))
        except StoreError:  # the request gets the error
            return None

    def nodes(self) -> list[str]:
        """Return "@host:port" for each node that serves slots; see `RedisCommand.line`."""
        self._cluster.read_map()
        return [f"@{host}:{port}" for host, port in self._cluster.addresses]
