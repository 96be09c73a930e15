"""One try on Redis, as steps that ask a server: packets of commands go out, their replies come in.

Source: https://redis.io/docs/latest/develop/using-commands/transactions/ (optimistic locking by check-and-set).
"""

from collections.abc import Sequence
from typing import Any, NoReturn, TypeAlias
from weakref import WeakSet

from interlock.core.effects import Ask, Op
from interlock.core.errors import InvalidArgument, StoreError, UnknownOutcome
from interlock.optimistic.backend import Queued
from interlock.optimistic.errors import CommandRefused, TryAgain
from interlock.optimistic.redis.libraries import Command, Library
from interlock.optimistic.redis.reads import keys_read

Packet: TypeAlias = Sequence[Command]

MULTI, EXEC, UNWATCH = (Command([name.encode()], name) for name in ("MULTI", "EXEC", "UNWATCH"))

HARMLESS = {b"WATCH", b"MULTI"}

_may_multi: WeakSet[Any] = WeakSet()
"""Clients that a server has answered OK to MULTI: where MULTI is refused, what follows it would be done at once."""


class ConnectionFailed(StoreError):
    """The connection failed; the cause is chained."""


class Conversation:
    """What is watched and queued in one try, and what is said to the server about it.

    Args:
        server: what sends a packet, and returns the reply to each of its commands.
        library: the client's library.
        client: the client.
        cluster: is the client's server a cluster, so that all keys must share a slot?

    Attributes:
        watched: the keys.
        writes: what is queued.
        watching: does the server watch something for this connection?
        slot: the cluster's slot of the keys; None until there is a key.
        moved: what the cluster said of where the slot is now; None if it said nothing.
        heard: has the server answered on this connection?
    """

    def __init__(self, server: Any, library: Library, client: Any, cluster: bool) -> None:
        self._server = server
        self._library = library
        self._client = client
        self._cluster = cluster
        self._failure: StoreError | None = None
        self.watched: dict[bytes, None] = {}
        self.writes: list[Queued] = []
        self.watching = False
        self.slot: int | None = None
        self.moved: Exception | None = None
        self.heard = False
        self._repeated = False

    def may_repeat(self, packet: Packet, error: ConnectionFailed) -> bool:
        """Tell whether a packet may be sent on another connection: once, if the first that was lent was dead.

        That one was closed by the server while nobody used it; nothing was watched on it, and nothing is done twice.
        """
        harmless = all(each.words[0] in HARMLESS or keys_read(each.words) is not None for each in packet)
        if self.heard or self._repeated or not harmless or isinstance(error.__cause__, self._library.time_is_over):
            return False
        self._repeated = True
        return True

    def watch(self, keys: Sequence[bytes]) -> Op[None]:
        """Watch those keys that are not watched yet."""
        packet = self._to_watch(keys)
        if packet:
            self._heard_of_watch(packet[0], (yield from self._say(packet))[0])

    def read(self, command: Command, watch: bool) -> Op[Any]:
        """Do a command now; in the same packet, before it, watch what it reads."""
        keys = keys_read(command.words)
        packet = self._to_watch(keys or ()) if watch else []
        try:
            replies = yield from self._say([*packet, command])
        except ConnectionFailed as error:
            if keys is not None:
                raise
            self._fail(
                UnknownOutcome(f"the server's answer to {command.name} did not come: it may have been done"), error
            )
        if packet:
            self._heard_of_watch(packet[0], replies[0])
        if isinstance(replies[-1], Exception):
            self._raise_if_passing(replies[-1])
            raise replies[-1]
        return replies[-1]

    def forget(self) -> Op[None]:
        """Watch nothing any more."""
        if self.watching:
            yield Ask(self._server, [UNWATCH])
            self.watching = False

    def check(self, broken: bool) -> None:
        """Raise if something went wrong before the commit, also when the function has passed over it.

        Args:
            broken: can the connection no longer be used?
        """
        if self._failure is not None:
            raise self._failure
        if broken:
            raise ConnectionFailed("a read in this try was interrupted, and with it the watch; nothing was changed")

    def commit(self) -> Op[list[Any] | None]:
        """Do all that is queued, unless something that is watched has changed.

        Returns:
            The replies, for `settle`; None if nothing was done.
        """
        if not self.writes and not self.watching:
            return []
        opening = [MULTI]
        # Alone, if it may be refused, or if the connection may be dead: what follows has no second try.
        if self._client not in _may_multi or not self.heard:
            self._heard_of_multi((yield Ask(self._server, opening))[0])
            opening = []
        try:
            packet = [*opening, *(each.request for each in self.writes), EXEC]
            replies: list[Any] = yield Ask(self._server, packet)
        except ConnectionFailed as error:
            self._no_answer(error)
        self.watching = False  # whatever EXEC answers
        if opening:
            self._heard_of_multi(replies.pop(0), unguarded=True)
        done = replies.pop()
        if isinstance(done, Exception):
            self._refuse(replies, done)
        return None if done is None else list(done)

    def settle(self, replies: Sequence[Any], callbacks: Any) -> bool:
        """Give each write its reply; True.

        Args:
            replies: from `commit`.
            callbacks: shape the replies as the library does.

        Raises:
            CommandRefused: some of them are refusals.
        """
        shaped = [each.request.shaped(reply, callbacks) for each, reply in zip(self.writes, replies, strict=True)]
        for each, reply in zip(self.writes, shaped, strict=True):
            each.settle(reply)
        refused = [(each.name, reply) for each, reply in zip(self.writes, shaped, strict=True)
                   if isinstance(reply, Exception)]  # fmt: skip
        if refused:
            what = "; ".join(f"{name}: {error}" for name, error in refused)
            raise CommandRefused(
                f"the transaction is done, except {len(refused)} of its {len(shaped)} commands, which the server "
                f"refused: {what}. Redis does not roll back",
                shaped,
            ) from refused[0][1]
        return True

    def _say(self, packet: Packet) -> Op[list[Any]]:
        try:
            return (yield Ask(self._server, packet))  # type: ignore[no-any-return]
        except ConnectionFailed as error:
            self._fail(error)

    def _fail(self, error: StoreError, cause: BaseException | None = None) -> NoReturn:
        """Raise, and keep the error for the commit: a function that passes over it must not commit unguarded."""
        self._failure = error
        raise error from (cause or error.__cause__)

    def _to_watch(self, keys: Sequence[bytes]) -> list[Command]:
        fresh = [key for key in dict.fromkeys(keys) if key not in self.watched]
        if self._cluster:
            for key in fresh:
                self._check_slot(key, next(iter([*self.watched, *fresh])))
        return [Command([b"WATCH", *fresh], "WATCH")] if fresh else []

    def _check_slot(self, key: bytes, first: bytes) -> None:
        slot = self._library.slot_of(key)
        if self.slot is not None and slot != self.slot:
            raise InvalidArgument(
                f"{text(key)!r} is in slot {slot} of the cluster, {text(first)!r} in slot {self.slot}: {ONE_TAG}"
            )
        self.slot = slot

    def _heard_of_watch(self, command: Command, reply: Any) -> None:
        if isinstance(reply, Exception):
            self._raise_if_passing(reply)
            self._fail(StoreError(f"the server refused WATCH: {reply}; nothing was changed"), reply)
        self.watched.update(dict.fromkeys(command.words[1:]))
        self.watching = True

    def _heard_of_multi(self, reply: Any, unguarded: bool = False) -> None:
        if not isinstance(reply, Exception):
            _may_multi.add(self._client)
            return
        _may_multi.discard(self._client)
        what = "what was queued may have been done without a guard" if unguarded else "nothing was changed"
        raise StoreError(f"the server refused MULTI: {reply}; {what}") from reply

    def _no_answer(self, error: ConnectionFailed) -> NoReturn:
        if not self.writes:
            raise error
        raise UnknownOutcome(
            "the server's answer to EXEC did not come: the transaction was done as a whole, or not at all, and which "
            "is not known. It is not tried again, since it could be done twice. Look at the keys; where that does "
            "not tell, let the transaction also write a key of its own (tx.set('done:<id>', 1)), and look for that"
        ) from error.__cause__

    def _refuse(self, replies: Sequence[Any], done: Exception) -> NoReturn:
        """Raise why nothing was done: the refusal of the first command that could not be queued, or of EXEC."""
        refusals = ((each.name, reply) for each, reply in zip(self.writes, replies, strict=False))
        name, error = next(((name, each) for name, each in refusals if isinstance(each, Exception)), ("EXEC", done))
        if self._library.is_cross_slot(error) or self._library.slot_in(error) not in (None, self.slot):
            raise InvalidArgument(f"the cluster refused {name}: {error}: {ONE_TAG}") from error
        self._raise_if_passing(error)
        raise StoreError(
            f"the server refused {name}, and with it the whole transaction: {error}; nothing was changed"
        ) from error

    def _raise_if_passing(self, error: Exception) -> None:
        if not self._library.is_passing(error):
            return
        if self._cluster:
            self.moved = self._library.moved_in(error)
            self._fail(TryAgain(f"the cluster has the keys on another node: {error}; nothing was changed"), error)
        self._fail(
            StoreError(
                f"this server is a node of a cluster ({error}): use the library's cluster client; nothing was changed"
            ),
            error,
        )


NO_KEY = "on a cluster the keys say which node to ask: name one, e.g. transact(client, function, key)"
ONE_TAG = (
    "all keys of a transaction must share a slot; give them one hash tag, "
    "e.g. '{book:1}:copies' and '{book:1}:readers'"
)


def text(key: bytes) -> str:
    """Return a key for people."""
    return key.decode(errors="replace")
