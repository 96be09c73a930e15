"""The client libraries, redis-py and valkey-py: what is needed to know about a client."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from inspect import Parameter, signature
from typing import Any, NamedTuple

from interlock._redis.errors import given_code
from interlock._redis.libraries import is_async, library_of
from interlock.core.errors import InvalidArgument
from interlock.core.redaction import described
from interlock.optimistic.redis.reads import NOT_IN_A_TRANSACTION, Words

UNDECODED = "NEVER_DECODE"  # the libraries' own mark on commands whose reply is no text
NOT_FOR_CALLBACKS = {"keys", "EMPTY_RESPONSE", UNDECODED}


class Command(NamedTuple):
    """One command.

    Attributes:
        words: as they go over the wire.
        name: as the library calls it.
        options: what the library needs to shape the reply.
    """

    words: Words
    name: str
    options: dict[str, Any] = {}

    @property
    def undecoded(self) -> bool:
        """Must the reply stay bytes, whatever the client's settings?"""
        return UNDECODED in self.options

    def shaped(self, reply: Any, callbacks: Any) -> Any:
        """Return the reply as the library's own client would."""
        if isinstance(reply, Exception) or self.name not in callbacks:
            return reply
        options = {name: value for name, value in self.options.items() if name not in NOT_FOR_CALLBACKS}
        return callbacks[self.name](reply, **options)


@lru_cache
def library(name: str, tasks: bool) -> "Library":
    """Return one of the two libraries in one colour."""
    return Library(name, tasks)


class Library:
    """One of the two libraries, in one colour.

    Args:
        name: "redis" or "valkey".
        tasks: True for asyncio.
    """

    def __init__(self, name: str, tasks: bool) -> None:
        errors = import_module(f"{name}.exceptions")
        commands = import_module(f"{name}.commands")
        title = name.capitalize()
        self.name = name
        self.failures: tuple[type[Exception], ...] = (
            OSError,
            getattr(errors, f"{title}Error"),
            getattr(errors, f"{title}ClusterException"),
        )
        self.refusal: type[Exception] = errors.ResponseError
        self.time_is_over: tuple[type[Exception], ...] = (errors.TimeoutError, TimeoutError)
        self._moved: type[Exception] = errors.MovedError
        self.slot_of: Callable[[bytes], int] = import_module(f"{name}.crc").key_slot
        colour = "Async" if tasks else ""
        self._faces = (
            getattr(commands, f"{colour}CoreCommands"),
            getattr(commands, f"{colour}{title}ModuleCommands"),
        )

    def is_passing(self, error: Exception) -> bool:
        """Tell whether a refusal means that the slot is elsewhere, or on its way there."""
        return given_code(error) in ("MOVED", "ASK", "TRYAGAIN")

    def is_cross_slot(self, error: Exception) -> bool:
        """Tell whether a refusal means that keys are in different slots."""
        return given_code(error) == "CROSSSLOT"

    def moved_in(self, error: Exception) -> Exception | None:
        """Return the library's own error for a slot that has moved; None if the refusal says something else."""
        if isinstance(error, self._moved):
            return error
        return self._moved(str(error).partition(" ")[2]) if given_code(error) == "MOVED" else None

    def slot_in(self, error: Exception) -> int | None:
        """Return the slot that a refusal names; None if it names none."""
        if hasattr(error, "slot_id"):
            return int(error.slot_id)
        return int(str(error).split()[1]) if given_code(error) in ("MOVED", "ASK") else None

    def method(self, name: str) -> Any:
        """Return the library's function for a command; None if it has none of that name."""
        return next((getattr(face, name) for face in self._faces if hasattr(face, name)), None)


def checked_library(client: Any, tasks: bool) -> Library:
    """Return the library that a client comes from.

    Raises:
        InvalidArgument: it is no client, or one of the other colour.
    """
    what, name = described(client), library_of(client)
    if name is None or not hasattr(client, "execute_command"):
        raise InvalidArgument(
            f"{what} is neither a client of redis-py or valkey-py nor a backend of optimistic transactions"
        )
    if is_async(client) and not tasks:
        raise InvalidArgument(f"{what} is a client of asyncio: give it to atransact(), and await that")
    if tasks and not is_async(client):
        raise InvalidArgument(f"{what} would block the event loop: give it to transact(), or take "
                              f"{name}.asyncio's client")  # fmt: skip
    return library(name, tasks)


def follow(nodes_manager: Any, moved: Exception) -> Any:
    """Tell a cluster's client where a slot has moved to; what is returned may have to be awaited."""
    for method in ("move_slot", "update_moved_exception"):  # newer and older libraries
        if hasattr(nodes_manager, method):
            return getattr(nodes_manager, method)(moved)
    nodes_manager._moved_exception = moved  # the older ones for asyncio
    return None


def command_of(encoder: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Command:
    """Return a command as the library's methods give it to `execute_command`.

    Raises:
        InvalidArgument: it is none that a transaction can have.
    """
    if not arguments or not isinstance(arguments[0], (str, bytes)) or not arguments[0].strip():
        raise InvalidArgument(f"a command begins with its name, e.g. 'INCR', not with {arguments[:1]!r}")
    name = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")
    words = [*name.encode().split(), *(bytes(encoder.encode(each)) for each in arguments[1:])]
    if words[0].upper() in NOT_IN_A_TRANSACTION:
        raise InvalidArgument(
            f"{name} can't be part of the transaction, which watches and commits by itself; to watch more keys: "
            f"tx.watch(key)"
        )
    return Command(words, name if isinstance(arguments[0], str) else name.upper(), options)


@lru_cache
def first_argument(get_connection: Callable[..., Any]) -> tuple[str, ...]:
    """Return what a pool's class wants `get_connection` to be called with: older ones want a command, for nothing."""
    parameter = signature(get_connection).parameters.get("command_name")
    return ("MULTI",) if parameter is not None and parameter.default is Parameter.empty else ()
