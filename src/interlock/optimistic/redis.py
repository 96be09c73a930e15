"""Transactions on Redis and Valkey: the parts of the client libraries, and `tx`.

All private names of these libraries are used only here; tests/optimistic/test_faults.py checks them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from inspect import Parameter, signature
from types import MethodType
from typing import Any, NamedTuple

from interlock.core.errors import InvalidArgument, StoreError
from interlock.core.redaction import described
from interlock.drivers.redis_py import check_interface, library_of
from interlock.optimistic.tries import Queued

Words = Sequence[bytes]


def _counted(words: Words) -> Words:
    number = words[1] if len(words) > 1 else b""
    return words[2 : 2 + int(number)] if number.isdigit() else ()


READS: dict[bytes, Callable[[Words], Words]] = {
    **dict.fromkeys(
        b"""
        BITCOUNT BITFIELD_RO BITPOS DIGEST DUMP EXPIRETIME GEODIST GEOHASH GEOPOS GEORADIUS_RO GEORADIUSBYMEMBER_RO
        GEOSEARCH GET GETBIT GETRANGE HEXISTS HEXPIRETIME HGET HGETALL HKEYS HLEN HMGET HPEXPIRETIME HPTTL HRANDFIELD
        HSCAN HSTRLEN HTTL HVALS LINDEX LLEN LPOS LRANGE PEXPIRETIME PTTL SCARD SISMEMBER SMEMBERS SMISMEMBER
        SRANDMEMBER SSCAN STRLEN SUBSTR TTL TYPE XLEN XPENDING XRANGE XREVRANGE ZCARD ZCOUNT ZLEXCOUNT ZMSCORE
        ZRANDMEMBER ZRANGE ZRANGEBYLEX ZRANGEBYSCORE ZRANK ZREVRANGE ZREVRANGEBYLEX ZREVRANGEBYSCORE ZREVRANK ZSCAN
        ZSCORE
        """.split(),
        lambda words: words[1:2],
    ),
    **dict.fromkeys(b"EXISTS MGET PFCOUNT SDIFF SINTER SUNION TOUCH".split(), lambda words: words[1:]),
    **dict.fromkeys(b"SINTERCARD ZDIFF ZINTER ZINTERCARD ZUNION".split(), _counted),
}
"""How to find the keys of commands that read immediately; all others are queued."""

NOT_IN_A_TRANSACTION = frozenset(
    b"""
    WATCH UNWATCH MULTI EXEC DISCARD SUBSCRIBE UNSUBSCRIBE PSUBSCRIBE PUNSUBSCRIBE SSUBSCRIBE SUNSUBSCRIBE MONITOR
    SYNC PSYNC QUIT RESET HELLO AUTH SELECT CLIENT ASKING READONLY READWRITE
    """.split()
)
"""Commands that would change the state of the connection."""


def keys_read(words: Words) -> Words | None:
    """Return the keys that a command reads; None if it does not only read named keys."""
    keys = READS.get(words[0].upper())
    return (keys(words) or None) if keys is not None else None


UNDECODED = "NEVER_DECODE"  # the libraries' own mark on commands whose reply is no text
NOT_FOR_CALLBACKS = {"keys", "EMPTY_RESPONSE", UNDECODED}


class ConnectionFailed(StoreError):
    """The connection failed; the cause is chained."""


class LibraryCommand(NamedTuple):
    """One command.

    Attributes:
        words: the words as bytes.
        name: the name in the library.
        options: the library's options to shape the reply.
    """

    words: Words
    name: str
    options: dict[str, object] = {}

    def shaped(self, reply: object, callbacks: Mapping[str, Callable[..., object]]) -> Any:
        """Return the reply like the library's own client."""
        if isinstance(reply, Exception) or self.name not in callbacks:
            return reply
        options = {name: value for name, value in self.options.items() if name not in NOT_FOR_CALLBACKS}
        return callbacks[self.name](reply, **options)


class Library:
    """A client library.

    Args:
        name: "redis" or "valkey".
        tasks: True for asyncio.
    """

    def __init__(self, name: str, tasks: bool) -> None:
        errors, commands, title = import_module(f"{name}.exceptions"), import_module(f"{name}.commands"), name.title()
        self.name = name
        self.tasks = tasks
        self.failures: tuple[type[Exception], ...] = (
            OSError,
            getattr(errors, f"{title}Error"),
            getattr(errors, f"{title}ClusterException"),
        )
        self.refusal: type[Exception] = errors.ResponseError
        self.time_is_over: tuple[type[Exception], ...] = (errors.TimeoutError, TimeoutError)
        self.slot_of: Callable[[bytes], int] = import_module(f"{name}.crc").key_slot
        kind = "Async" if tasks else ""
        self._faces = getattr(commands, f"{kind}CoreCommands"), getattr(commands, f"{kind}{title}ModuleCommands")

    def method(self, name: str) -> Any:
        """Return the library's function for a command; None if it has none."""
        return next((getattr(face, name) for face in self._faces if hasattr(face, name)), None)

    def home_of(self, client: Any, slot: int | None) -> Any:
        """Return the source of connections and `response_callbacks`: the client or its node."""
        if slot is None:
            return client
        manager = client.nodes_manager
        node = manager.get_node_from_slot(slot)
        if not self.tasks:
            return getattr(client, f"get_{self.name}_connection")(node)
        # That node may be a copy of the client's node, and closes at its end.
        return manager.nodes_cache.get(node.name, node)

    def disconnect(self, connection: Any) -> Any:
        """Close a connection without waiting for the server; for tasks, await the result."""
        return connection.disconnect(nowait=True) if self.tasks else connection.disconnect()


known_library = lru_cache(Library)


def checked_library(client: object, tasks: bool) -> Library:
    """Return the library of a client.

    Raises:
        InvalidArgument: not a client, or sync for tasks, or async for threads.
    """
    name = library_of(client)
    if name is None or not hasattr(client, "execute_command"):
        raise InvalidArgument(
            f"{described(client)} is not supported. Pass a client of redis-py or valkey-py, or a backend of "
            f"optimistic transactions."
        )
    check_interface(client, tasks, "transact()", "atransact()")
    return known_library(name, tasks)


def slot_in(error: Exception) -> int | None:
    """Return the slot in a MOVED or ASK refusal."""
    return int(error.slot_id if hasattr(error, "slot_id") else str(error).split()[1])


@lru_cache
def first_argument(get_connection: Callable[..., object]) -> tuple[str, ...]:
    """Return the arguments of a pool's `get_connection`: older pools want a command."""
    parameter = signature(get_connection).parameters.get("command_name")
    return ("MULTI",) if parameter is not None and parameter.default is Parameter.empty else ()


def give_back_to_node(node: Any, connection: object) -> None:
    """Return a connection to a cluster's node of asyncio, also for older libraries."""
    if hasattr(node, "release"):
        node.release(connection)
    else:
        node._free.append(connection)


class Transaction:
    """The argument of the function; with asyncio, await reads, `watch` and `ask`.

    It has all commands of the client's library. A command that only reads (GET, HGETALL, ZRANGE, MGET, ...) runs
    immediately, and its keys are watched from then on. Any other command is queued, and runs at the commit if no
    watched key has changed.

    Attributes:
        number: the number of the try, from 1.
    """

    def __init__(self, attempt: Any, library: Library, encoder: Any, number: int, writes: list[Queued]) -> None:
        self._attempt = attempt
        self._library = library
        self._encoder = encoder
        self._writes: list[Queued] | None = writes
        self.number = number

    def queue(self, *words: object) -> Queued:
        """Queue any command, e.g. `tx.queue("JSON.SET", "book", "$", "{}")`.

        Returns:
            A placeholder: its `.reply` after the commit; returned from the function, the reply itself.

        Raises:
            InvalidArgument: the command is not allowed in a transaction.
        """
        return self._later(self._command(words, {}))

    def watch(self, *keys: object) -> Any:
        """Watch more keys: a later change prevents the commit."""
        return self._attempt.watch(keys)

    def ask(self, *words: object) -> Any:
        """Run any command now and return its reply, without watching; a write is final."""
        return self._attempt.read(self._command(words, {}), watch=False)

    def get_encoder(self) -> Any:
        """Encode arguments, for the library."""
        return self._encoder

    def execute_command(self, *words: object, **options: object) -> Any:
        """Run a command now if it only reads, otherwise queue it, for the library."""
        command = self._command(words, options)
        return self._later(command) if keys_read(command.words) is None else self._attempt.read(command)

    def encoded(self, keys: Sequence[object]) -> list[bytes]:
        """The keys as bytes, for backends."""
        self._open()
        return [bytes(self._encoder.encode(key)) for key in keys]

    def end(self) -> None:
        """End the requests, for backends: the function has returned."""
        self._writes = None

    def _command(self, arguments: Sequence[object], options: dict[str, object]) -> LibraryCommand:
        """Return a command in the form of the library's `execute_command`.

        Raises:
            InvalidArgument: the command is not allowed in a transaction.
        """
        if not arguments or not isinstance(arguments[0], (str, bytes)) or not arguments[0].strip():
            raise InvalidArgument(f"A command must begin with its name, e.g. 'INCR', not {arguments[:1]!r}.")
        name = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")
        words = [*name.encode().split(), *self.encoded(arguments[1:])]
        if words[0].upper() in NOT_IN_A_TRANSACTION:
            raise InvalidArgument(
                f"{name} is not allowed: the transaction watches and commits automatically. To watch more keys, call "
                f"tx.watch(key)."
            )
        return LibraryCommand(words, name if isinstance(arguments[0], str) else name.upper(), options)

    def _later(self, command: LibraryCommand) -> Queued:
        queued = Queued(command, command.name)
        self._open().append(queued)
        return queued

    def _open(self) -> list[Queued]:
        if self._writes is None:
            raise InvalidArgument("This transaction has ended. Use it only in the function that received it.")
        return self._writes

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("__") else self._library.method(name)
        if method is None:
            raise AttributeError(
                f"A transaction has no {name!r}, only the client's commands, watch, ask, queue and number."
            )
        return MethodType(method, self)
