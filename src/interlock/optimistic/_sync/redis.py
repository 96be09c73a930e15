# Generated from _async/redis.py by tools/unasync.py; change that one.
"""One try on Redis: its watched keys, its queue, and its requests.

Source: https://redis.io/docs/latest/develop/using-commands/transactions/ (optimistic locking by check-and-set).
"""

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, NoReturn
from weakref import WeakSet

from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.drivers.redis_py import given_code
from interlock.optimistic.redis import (
    UNDECODED,
    ConnectionFailed,
    Library,
    LibraryCommand,
    Transaction,
    first_argument,
    give_back_to_node,
    keys_read,
    slot_in,
)
from interlock.optimistic.tries import CommandRefused, Queued, Tries, TryAgain
from interlock.runtime import _threads as rt
from interlock.runtime import clock


class TransactionConnection:
    """A watching connection, which the library must not reconnect.

    The library reconnects a lost connection silently, and a new connection watches nothing.

    Args:
        library: the client's library.
        home: the pool, or the node of a cluster, that owns the connection.
        lent: the connection.

    Attributes:
        broken: True after the connection must not be used.
    """

    def __init__(self, library: Library, home: object, lent: Any) -> None:
        self._library = library
        self._home = home
        self._lent = lent
        self.broken = False
        lent.register_connect_callback(self.connected)

    def connected(self, connection: object) -> None:
        """Refuse to connect again, for the library.

        Raises:
            ConnectionFailed: always.
        """
        raise ConnectionFailed("it was closed, and a new one watches nothing")

    def exchange(self, packet: Sequence[LibraryCommand], io_timeout: float | None) -> list[Any]:
        """Send commands and wait for their replies, including refusals.

        Args:
            packet: the commands.
            io_timeout: maximum wait for replies in seconds (threads: for each reply; tasks: for all), unless the
                client's limit is shorter; None for the client's limit.

        Raises:
            ConnectionFailed: the connection failed.
        """
        if self.broken:
            raise ConnectionFailed("The connection failed earlier in this try. Nothing was changed.")
        self.broken = True  # until all replies have come
        try:
            replies = rt.within(io_timeout, self._exchange, packet, io_timeout)
        except Exception as error:
            raise ConnectionFailed(f"The connection failed: {error!r}. Nothing was changed.") from error
        self.broken = False
        return replies

    def _exchange(self, packet: Sequence[LibraryCommand], io_timeout: float | None) -> list[object]:
        self._lent.send_packed_command(self._lent.pack_commands([each.words for each in packet]), False)
        return [self._reply(each, io_timeout) for each in packet]

    def _reply(self, command: LibraryCommand, io_timeout: float | None) -> object:
        if io_timeout is not None and not rt.IS_ASYNC:
            own = self._lent.socket_timeout
            if not self._lent.can_read(io_timeout if own is None else min(own, io_timeout)):
                raise TimeoutError(f"no reply within {io_timeout:g} s")
        try:
            return self._lent.read_response(disable_decoding=UNDECODED in command.options)
        except self._library.refusal as error:
            return error

    def close(self) -> None:
        """Return the connection, even after a cancellation; a broken one reconnects."""
        self._lent.deregister_connect_callback(self.connected)
        try:
            if self.broken:
                self._library.disconnect(self._lent)
        finally:
            give_back(self._home, self._lent)


def give_back(home: Any, lent: object) -> None:
    """Return a connection to its pool, or its node of a cluster."""
    if hasattr(home, "get_connection"):
        home.release(lent)
    else:
        give_back_to_node(home, lent)


def borrow(library: Library, home: Any, fresh: bool) -> TransactionConnection:
    """Return a connected connection.

    Args:
        library: the client's library.
        home: the pool, or the node of a cluster, that owns it.
        fresh: True to connect it again.

    Raises:
        The client's exceptions.
    """
    if hasattr(home, "get_connection"):
        lent = home.get_connection(*first_argument(type(home).get_connection))
    else:
        lent = home.acquire_connection()
    try:
        if fresh:
            library.disconnect(lent)
        lent.connect()
        return TransactionConnection(library, home, lent)
    except BaseException:
        rt.finish(give_back, home, lent)
        raise


MULTI, EXEC, UNWATCH = (LibraryCommand([name.encode()], name) for name in ("MULTI", "EXEC", "UNWATCH"))
HARMLESS = {b"WATCH", b"MULTI"}
NO_KEY = "On a cluster the keys select the node. Give one, e.g. transact(client, function, key)."
ONE_TAG = (
    "All keys of a transaction must share a slot. Give them one hash tag, "
    "e.g. '{book:1}:copies' and '{book:1}:readers'."
)

_may_multi: WeakSet[object] = WeakSet()
"""Clients whose server has accepted MULTI; otherwise later commands would run directly."""


class RedisAttempt:
    """One try.

    Args:
        library: the client's library.
        client: a client of redis-py or valkey-py, also of Sentinel or a cluster.
        tries: the number of the try, and the time for a reply.
    """

    def __init__(self, library: Library, client: Any, tries: Tries) -> None:
        self._library = library
        self._client = client
        self._cluster = hasattr(client, "nodes_manager")
        self._tries = tries
        self._connection: TransactionConnection | None = None
        self._callbacks: Any = {}
        self._turn = rt.Turn()  # because a function may gather() its reads
        self._watched: dict[bytes, None] = {}
        self._watching = False
        self._slot: int | None = None
        self._moved = self._heard = self._repeated = False
        self._failure: StoreError | None = None
        self._writes: list[Queued] = []
        self.transaction = Transaction(self, library, client.get_encoder(), tries.number, self._writes)

    @property
    def keys(self) -> Sequence[str]:
        """The watched keys, for messages."""
        return [_text(key) for key in self._watched]

    def watch(self, keys: Sequence[object]) -> None:
        """Watch those keys that are not watched."""
        encoded = self.transaction.encoded(keys)
        with self._turn:
            packet = self._to_watch(encoded)
            if packet:
                self._heard_of_watch(packet[0], (self._ask(packet))[0])

    def read(self, request: LibraryCommand, watch: bool = True) -> Any:
        """Run a command now.

        Args:
            request: the command.
            watch: True to watch its keys first, in the same packet.
        """
        keys = keys_read(request.words)
        with self._turn:
            packet = self._to_watch(keys or ()) if watch else []
            try:
                replies = self._ask([*packet, request])
            except ConnectionFailed as error:
                if keys is not None:
                    raise
                self._fail(
                    UnknownOutcome(f"No reply to {request.name} came: it may have been done."),
                    error,
                )
            if packet:
                self._heard_of_watch(packet[0], replies[0])
            if isinstance(replies[-1], Exception):
                self._raise_if_passing(replies[-1])
                raise replies[-1]
        return request.shaped(replies[-1], self._callbacks)

    def commit(self) -> bool:
        """Run all queued commands unless a watched key has changed; return True if they ran."""
        self.transaction.end()
        with self._turn:
            if self._failure is not None:  # even if the function has ignored it
                raise self._failure
            if self._connection is not None and self._connection.broken:
                raise ConnectionFailed("A read was interrupted, and the watch with it. Nothing was changed.")
            if not self._writes and not self._watching:
                return True
            replies = self._execute()
        return replies is not None and self._settle(replies)

    def _execute(self) -> list[object] | None:
        """Return the replies to the queue; None if a watched key has changed."""
        opening = [MULTI]
        # Separately, if it may be refused, or the connection may be dead: the following commands have no second try.
        if self._client not in _may_multi or not self._heard:
            self._heard_of_multi((self._ask(opening))[0], "Nothing was changed.")
            opening = []
        try:
            replies = self._ask([*opening, *(each.request for each in self._writes), EXEC])
        except ConnectionFailed as error:
            if not self._writes:
                raise
            raise UnknownOutcome(
                "No reply to EXEC came: the transaction was done completely or not at all. It was not retried, "
                "because it could be done twice. Check the keys. If they do not show the outcome, let each "
                "transaction also write its own key (tx.set('done:<id>', 1)), and check that key."
            ) from error.__cause__
        self._watching = False  # for each reply of EXEC
        if opening:
            self._heard_of_multi(replies.pop(0), "The queued commands may have been done unguarded.")
        done = replies.pop()
        if isinstance(done, Exception):
            self._refuse(replies, done)
        return None if done is None else list(done)

    def _settle(self, replies: Sequence[object]) -> bool:
        """Set the reply of each write."""
        for each, reply in zip(self._writes, replies, strict=True):
            each.settle(each.request.shaped(reply, self._callbacks))
        refused = [(each.name, each.reply) for each in self._writes if isinstance(each.reply, Exception)]
        if refused:
            raise CommandRefused(
                f"The transaction was done except for {len(refused)} of its {len(replies)} commands, which the "
                f"server refused: {'; '.join(f'{name}: {error}' for name, error in refused)}. "
                "Redis does not roll back.",
                [each.reply for each in self._writes],
            ) from refused[0][1]
        return True

    def _ask(self, packet: Sequence[LibraryCommand]) -> list[Any]:
        """Send a packet on the connection of this try, and return the replies.

        Raises:
            ConnectionFailed: the connection failed.
            StoreError, InvalidArgument: there is no connection; see `_connected`.
        """
        if self._connection is None:
            self._connection = self._connected()
        try:
            replies = self._connection.exchange(packet, self._tries.io_timeout(clock.now()))
        except ConnectionFailed as error:
            if not self._may_repeat(packet, error):
                self._fail(error, error.__cause__)
            connection, self._connection, self._repeated = self._connection, None, True
            rt.finish(connection.close)
            return self._ask(packet)
        self._heard = True
        return replies

    def _connected(self) -> TransactionConnection:
        """Return a connection to the server of the keys.

        Raises:
            InvalidArgument: a cluster without a key.
            StoreError: the server is unreachable.
        """
        if self._cluster and self._slot is None:
            raise InvalidArgument(NO_KEY)
        try:
            home = self._library.home_of(self._client, self._slot)
            self._callbacks = home.response_callbacks
            return borrow(self._library, getattr(home, "connection_pool", home), self._repeated)
        except self._library.failures as error:
            self._look_again()
            raise StoreError(f"The server is unreachable: {error!r}. Nothing was changed.") from error

    def _look_again(self) -> None:
        """Ask a cluster for its slots: an unreachable node may have a successor."""
        if self._cluster:
            with suppress(*self._library.failures):
                self._client.nodes_manager.initialize()

    def _may_repeat(self, packet: Sequence[LibraryCommand], error: ConnectionFailed) -> bool:
        """Return True if a packet may be sent once more, because the first connection was dead.

        The server had closed that connection while unused, so nothing was watched on it, and nothing is done twice.
        """
        harmless = all(each.words[0] in HARMLESS or keys_read(each.words) is not None for each in packet)
        late = isinstance(error.__cause__, self._library.time_is_over)
        return harmless and not (self._heard or self._repeated or late)

    def _fail(self, error: StoreError, cause: BaseException | None) -> NoReturn:
        """Raise, and keep the error for the commit, which must not run unguarded."""
        self._failure = error
        raise error from cause

    def _to_watch(self, keys: Sequence[bytes]) -> list[LibraryCommand]:
        fresh = [key for key in dict.fromkeys(keys) if key not in self._watched]
        for key in fresh if self._cluster else ():
            slot = self._library.slot_of(key)
            if self._slot is not None and slot != self._slot:
                first = _text([*self._watched, *fresh][0])
                raise InvalidArgument(
                    f"{_text(key)!r} is in slot {slot} of the cluster, {first!r} in slot {self._slot}. {ONE_TAG}"
                )
            self._slot = slot
        return [LibraryCommand([b"WATCH", *fresh], "WATCH")] if fresh else []

    def _heard_of_watch(self, command: LibraryCommand, reply: object) -> None:
        if isinstance(reply, Exception):
            self._raise_if_passing(reply)
            self._fail(StoreError(f"The server refused WATCH: {reply}. Nothing was changed."), reply)
        self._watched.update(dict.fromkeys(command.words[1:]))
        self._watching = True

    def _heard_of_multi(self, reply: object, what: str) -> None:
        if not isinstance(reply, Exception):
            _may_multi.add(self._client)
            return
        _may_multi.discard(self._client)
        raise StoreError(f"The server refused MULTI: {reply}. {what}") from reply

    def _refuse(self, replies: Sequence[object], done: Exception) -> NoReturn:
        """Raise the cause: the refusal of the first command that could not be queued, or of EXEC."""
        refusals = ((each.name, reply) for each, reply in zip(self._writes, replies, strict=False))
        name, error = next(((name, each) for name, each in refusals if isinstance(each, Exception)), ("EXEC", done))
        code = given_code(error)
        if code == "CROSSSLOT" or (code in ("MOVED", "ASK") and slot_in(error) != self._slot):
            raise InvalidArgument(f"The cluster refused {name}: {error}. {ONE_TAG}") from error
        self._raise_if_passing(error)
        raise StoreError(
            f"The server refused {name} and thus the whole transaction: {error}. Nothing was changed."
        ) from error

    def _raise_if_passing(self, error: Exception) -> None:
        """Raise if a refusal means that the slot is on another node, or is moving."""
        if given_code(error) not in ("MOVED", "ASK", "TRYAGAIN"):
            return
        if self._cluster:
            self._moved = True
            self._fail(TryAgain(f"The cluster has the keys on another node: {error}. Nothing was changed."), error)
        self._fail(
            StoreError(
                f"This server is a node of a cluster ({error}). Use the library's cluster client. "
                "Nothing was changed."
            ),
            error,
        )

    def __enter__(self) -> "RedisAttempt":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.transaction.end()
        connection = self._connection
        if connection is None:
            return
        try:
            # After an interrupt or a cancellation send nothing more.
            if self._watching and not connection.broken and (kind is None or issubclass(kind, Exception)):
                with self._turn:
                    with suppress(ConnectionFailed):
                        self._ask([UNWATCH])
                        self._watching = False
        finally:
            connection.broken = connection.broken or self._watching  # a disconnect also forgets the watched keys
            rt.finish(connection.close)
        if self._moved:
            self._look_again()


def _text(key: bytes) -> str:
    """Return a key for messages."""
    return key.decode(errors="replace")
