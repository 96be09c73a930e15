"""What the function of a transaction is given: the client's commands, done now or at the commit."""

from collections.abc import Sequence
from types import MethodType
from typing import Any

from interlock.core.errors import InvalidArgument
from interlock.optimistic.queued import Queued
from interlock.optimistic.redis.libraries import Library, LibraryCommand, command_of, keys_read


class Transaction:
    """What the function is given; with asyncio, reads, `watch` and `ask` are to be awaited.

    It has all commands of the client's library, called as there. A command that only reads (GET, HGETALL, ZRANGE,
    MGET, ...) is done at once, and what it reads is watched from then on. Any other is queued, and done at the commit
    if nothing that is watched has changed.

    Attributes:
        number: which try this is, from 1.
    """

    def __init__(self, attempt: Any, backend: Any, number: int, writes: list[Queued]) -> None:
        self._attempt = attempt
        self._library: Library = backend.library
        self._encoder = backend.client.get_encoder()
        self._writes: list[Queued] | None = writes
        self.number = number

    def queue(self, *words: object) -> Queued:
        """Queue any command, e.g. `tx.queue("JSON.SET", "book", "$", "{}")`.

        Returns:
            What stands for the reply: its `.reply` after the commit; returned from the function, the reply itself.

        Raises:
            InvalidArgument: it can't be part of a transaction.
        """
        return self._later(self._command(words, {}))

    def watch(self, *keys: object) -> Any:
        """Watch more keys: if one changes from now on, nothing is committed."""
        return self._attempt.watch(keys)

    def ask(self, *words: object) -> Any:
        """Do any command now and return its reply, without watching what it reads; a write is done for good."""
        return self._attempt.read(self._command(words, {}), watch=False)

    def get_encoder(self) -> Any:
        """For the library: how it makes bytes of arguments."""
        return self._encoder

    def execute_command(self, *words: object, **options: object) -> Any:
        """For the library: do a command now if it only reads, otherwise queue it."""
        command = self._command(words, options)
        return self._later(command) if keys_read(command.words) is None else self._attempt.read(command)

    def encoded(self, keys: Sequence[object]) -> list[bytes]:
        """For backends: the keys as they go over the wire."""
        self._open()
        return [bytes(self._encoder.encode(key)) for key in keys]

    def end(self) -> None:
        """For backends: the function has returned; from now on nothing can be asked."""
        self._writes = None

    def _command(self, words: Sequence[object], options: dict[str, object]) -> LibraryCommand:
        self._open()
        return command_of(self._encoder, words, options)

    def _later(self, command: LibraryCommand) -> Queued:
        queued = Queued(command, command.name)
        self._open().append(queued)
        return queued

    def _open(self) -> list[Queued]:
        if self._writes is None:
            raise InvalidArgument("this transaction is over: use it only in the function that it was given to")
        return self._writes

    def __getattr__(self, name: str) -> Any:
        method = None if name.startswith("__") else self._library.method(name)
        if method is None:
            raise AttributeError(
                f"a transaction has no {name!r}, only the client's commands, watch, ask, queue and number"
            )
        return MethodType(method, self)
