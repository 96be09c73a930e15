"""What the nodes of a cluster answer instead of doing a step, and how it is followed; shared by both colours."""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock._redis.errors import Moving, NoRoom, Passing, Redirected
from interlock._redis.keys import keys_of_line
from interlock._redis.message import Denied, Message, Unreachable
from interlock._redis.migration import Here, exist, with_line_alone
from interlock._redis.slots import CLUSTER_SLOTS, SLOTS, Address, Shares, covered, shares_of
from interlock.core.effects import NOW, Ask, Op, Sleep
from interlock.core.errors import StoreError, UnknownOutcome

if TYPE_CHECKING:
    from interlock._redis.map import Map

PAUSE = 0.05  # seconds between two looks while the cluster changes
MOMENT = 0.2  # seconds; whoever acquires waits longer by itself, as it knows until when
HOPS = 3  # redirections in a row that are followed at once


class Reading(NamedTuple):
    """The wish to read the map.

    Attributes:
        version: of the map that was found old; if there is another one already, it is not read. None to read it
            in any case.
        first: the node to ask first.
        last: the node to ask last.
    """

    version: int | None = None
    first: Address | None = None
    last: Address | None = None


class Nodes:
    """Reads the map of a cluster, and answers what stands for each node that has keys.

    Args:
        map: takes what was read.
        pool_of: returns the connections to a node.
    """

    def __init__(self, map: "Map", pool_of: Callable[[Address], Any]) -> None:
        self._map = map
        self._pool_of = pool_of

    def _read(self, reading: Reading) -> Op[list[str]]:
        map, version = self._map, self._map.version
        best: tuple[int, Shares, Address] | None = None
        failure: StoreError | None = None
        if reading.version is not None and reading.version != version:
            return map.nodes()
        began = yield NOW
        for address in map.candidates(reading.first, reading.last):
            try:
                message = Message(CLUSTER_SLOTS, "", io_timeout=map.io_timeout / 2)
                reply = yield Ask(self._pool_of(address), message)
            except StoreError as error:
                failure = error
                if (yield NOW) - began >= map.io_timeout:
                    break  # however many are left: whoever asks next begins with others
                continue
            shares = shares_of(reply, address[0], map.remap)
            found = covered(shares)
            if best is None or found > best[0]:
                best = found, shares, address
            if found >= SLOTS:
                break
            if map.version != version:
                return map.nodes()  # somebody else has read it meanwhile
        if best is None:
            raise _not_read(failure)
        map.install(best[1], best[2])
        return map.nodes()


def _not_read(failure: StoreError | None) -> StoreError:
    """Return the error of a map that nobody tells; nothing of what was to be done has been done."""
    if failure is None or isinstance(failure, UnknownOutcome):
        return Unreachable(f"no node of the Redis cluster says where its slots are: {failure}")
    return failure


class _Asking(NamedTuple):
    """A node that is asked for what only moves there now.

    Attributes:
        pool: the connections to it.
    """

    pool: Any

    def ask(self, message: Message) -> Any:
        return self.pool.ask(message, asking=True)

    def aask(self, message: Message) -> Any:
        return self.pool.aask(message, asking=True)


class _Target(NamedTuple):
    """Where a step is asked for.

    Attributes:
        address: the node.
        source: the node that the slot leaves, if it only moves to `address` now.
    """

    address: Address
    source: Address | None = None


class Directions:
    """Follows what the nodes answer until a step is done.

    Args:
        map: the cluster.
        nodes: reads the map.
        pool_of: returns the connections to a node.
    """

    def __init__(self, map: "Map", nodes: Any, pool_of: Callable[[Address], Any]) -> None:
        self._map = map
        self._nodes = nodes
        self._pool_of = pool_of

    def follow(self, message: Message, address: Address | None, version: int, failure: StoreError) -> Op[Any]:
        """Perform a step that a node did not, until the io_timeout of the message.

        Args:
            message: the step.
            address: the node that was asked, if any.
            version: of the map by which it was chosen.
            failure: what it answered.

        Raises:
            StoreError: it could not be done in that time; whoever acquires learns in a moment that a slot moves.
        """
        started = monotonic()
        target = None if address is None else _Target(address)
        in_parts = isinstance(failure, Moving)  # later answers of this sort have been through that already
        hops = unreachable = 0
        while True:
            if isinstance(failure, Redirected) and target is not None:
                hops += 1
                if hops > HOPS:
                    yield Sleep(PAUSE)
                target = yield from self._redirected(failure, target, version)
            elif not in_parts:
                if isinstance(failure, Unreachable):
                    unreachable += 1
                    if unreachable > 1:
                        raise failure  # the map was read anew, and the node is not there
                yield Sleep(PAUSE)
                if not isinstance(failure, Moving):
                    yield Ask(self._nodes, Reading(version, last=target and target.address))
                target = None
            version = self._map.version
            try:
                if target is None:
                    target = _Target(self._map.address_of(message.line))
                if in_parts:
                    in_parts = False
                    return (yield from self._in_parts(message, target))
                return (yield from self._ask(message, target))
            except (NoRoom, Denied):
                raise
            except (Passing, Unreachable) as error:
                failure = error
            if monotonic() - started > self._io_timeout(message, failure):
                raise failure

    def once(self, message: Message) -> Op[Any]:
        """Perform a step that may be asked twice, if that can be done now.

        Raises:
            StoreError: it could not.
        """
        version = self._map.version
        target = _Target(self._map.address_of(message.line))
        for _ in range(HOPS):
            try:
                return (yield from self._ask(message, target))
            except Redirected as error:
                target = yield from self._redirected(error, target, version)
        return (yield from self._ask(message, target))

    def _io_timeout(self, message: Message, failure: StoreError) -> float:
        if isinstance(failure, Moving) and message.owner is not None:
            return MOMENT
        return message.io_timeout or self._map.io_timeout

    def _redirected(self, redirection: Redirected, target: _Target, version: int) -> Op[_Target]:
        """Return where a node points at; if the name lives there now, read the map anew."""
        address = self._map.target_of(redirection, target.address)
        if redirection.asking:
            return _Target(address, source=target.address)
        try:
            yield Ask(self._nodes, Reading(version, first=address))
        except StoreError:
            pass  # this step knows where to go
        return _Target(address)

    def _ask(self, message: Message, target: _Target) -> Op[Any]:
        try:
            return (yield Ask(self._at(target), message))
        except Moving:
            return (yield from self._in_parts(message, target))

    def _at(self, target: _Target) -> Any:
        pool = self._pool_of(target.address)
        return pool if target.source is None else _Asking(pool)

    def _in_parts(self, message: Message, target: _Target) -> Op[Any]:
        """Perform a step that was refused because a node has not all keys of the name, by the key of the line alone.

        Raises:
            Moving: it needs what is on another node.
        """
        try:
            if target.source is not None:
                return (yield from self._where_it_moves_to(message, target))
            try:
                return (yield from self._alone(message, target, Here.LINE))
            except Redirected as error:  # the line has gone ahead of the rest
                ahead = _Target(self._map.target_of(error, target.address), source=target.address)
                return (yield from self._where_it_moves_to(message, ahead))
            except Moving:
                # In this order: where the line has not gone yet, nobody begins to wait after the first look.
                rest = yield from self._rest_of(message, target.address)
                if rest is None or (yield from self._anybody_waits(message, rest)):
                    raise
                return (yield from self._alone(message, target, Here.LINE_UNWAITED))
        except Redirected as error:
            raise Moving(str(error)) from error  # on and on: look at the map again

    def _where_it_moves_to(self, message: Message, target: _Target) -> Op[Any]:
        """Perform a step on the node that has the line already, and perhaps the rest."""
        assert target.source is not None
        rest = yield from self._rest_of(message, target.source)
        return (yield from self._alone(message, target, Here.LINE if rest is None else Here.ALL))

    def _rest_of(self, message: Message, source: Address) -> Op[_Target | None]:
        """Return where everything but the line has gone, if it ever was there; None while the source has some."""
        try:
            yield Ask(self._pool_of(source), exist(message, *keys_of_line(message.line)[1:]))
        except Redirected as error:
            if error.asking:
                return _Target(self._map.target_of(error, source), source)
            raise
        except Moving:
            pass
        return None

    def _anybody_waits(self, message: Message, target: _Target) -> Op[bool]:
        for key in keys_of_line(message.line)[1:]:
            if (yield Ask(self._at(target), exist(message, key))):
                return True
        return False

    def _alone(self, message: Message, target: _Target, here: Here) -> Op[Any]:
        alone = with_line_alone(message, here)
        if alone is None:
            raise Moving(
                "the slot of these keys is being moved to another node of the cluster: try again in a moment"
            )
        return (yield Ask(self._at(target), alone))
