"""One key, and what is asked about it, in the best way that the server has: that is found out by trying.

Valkey 9 has `DELIFEQ key token`, Redis 8.4 `DELEX key IFEQ token`; both have `SET key token IFEQ token PX ms`.
Elsewhere a Lua script compares, as in https://redis.io/docs/latest/commands/set/. What worked is remembered for the
client's server, and tried first the next time; if it does not work any more, because the server was changed or the
user's permissions were, the others are tried again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from interlock.core.errors import StoreError
from interlock.keylock.arguments import checked_client, checked_key
from interlock.keylock.clients import CommandName, LostReply, NotHere, Sent, as_bytes, known_of, translated
from interlock.runtime import _aio as rt

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which a cancelled task still waits for the reply to what it has sent."""

DROP = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0"""
EXTEND = """\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0"""
LENGTHEN = """\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], left + ARGV[2])"""


async def or_undo(undo: Callable[..., rt.Result[object]], function: Callable[..., rt.Result[T]], *args: Any) -> T:
    """Call a function; if it is cancelled or interrupted, call `undo` with the same arguments before that goes on."""
    try:
        return await function(*args)
    except (Exception, GeneratorExit):
        raise
    except BaseException:
        with suppress(Exception):  # the interrupt is what the caller is to hear of
            await rt.finish(rt.within, PATIENCE, undo, *args)
        raise


class AsyncOneKey:
    """A key of Redis or Valkey that is a lock.

    Args:
        client: what has `execute_command`.
        key: the key.

    Raises:
        InvalidArgument: an argument is of a wrong type.
    """

    def __init__(self, client: Any, key: str | bytes) -> None:
        self._client = checked_client(client, rt.TASKS)
        self._key = key
        self._encoded_key = checked_key(key)
        self._known = known_of(client)

    @property
    def key(self) -> str | bytes:
        """The key of the lock."""
        return self._key

    async def locked(self) -> bool:
        """Ask the server whether anybody holds the lock.

        Raises:
            StoreError: the server can't be reached or refuses.
        """
        return await self._holder() is not None

    async def _holder(self) -> bytes | None:
        found = await self._ask("GET", self._key)
        return None if found is None else as_bytes(found)

    async def _take(self, token: bytes, ms: int | None, sent: Sent | None = None) -> bool:
        """Make `token` the value of the key if that does not exist.

        Args:
            token: what to write.
            ms: milliseconds until the key expires; None for never.
            sent: notes whether it was sent again.  If it is given, nobody else ever writes this token: this very step
                took a key that has it, the reply was lost, and the client has asked again.

        Returns:
            True if the key is now the caller's.
        """
        words = ("SET", self._key, token, "NX", *(() if ms is None else ("PX", ms)))
        if sent is None:
            return await self._ask(*words) is not None
        # Redis 6 and older refuse GET beside NX.
        way, found = await self._first_that_works("take", ((*words, "GET"), words), sent)
        if way == 0:
            return found is None or as_bytes(found) == token
        return found is not None or await self._holder() == token

    async def _drop(self, token: bytes, sent: Sent) -> bool:
        """Delete the key if its value is `token`; return whether the last time that it was sent deleted it."""
        ways = (
            ("DELIFEQ", self._key, token),
            ("DELEX", self._key, "IFEQ", token),
            ("EVAL", DROP, 1, self._key, token),
        )
        return bool((await self._first_that_works("drop", ways, sent))[1])

    async def _extend(self, token: bytes, ms: int | None) -> bool:
        """Let the key expire in `ms` milliseconds from now if its value is `token`; return whether it is."""
        ways = (("SET", self._key, token, "IFEQ", token, "PX", ms), ("EVAL", EXTEND, 1, self._key, token, ms))
        return bool((await self._first_that_works("extend", ways, Sent()))[1])

    async def _lengthen(self, token: bytes, ms: int | None) -> bool:
        """Let the key expire `ms` milliseconds later if its value is `token`; False if not, or it never expires."""
        return bool(await self._ask("EVAL", LENGTHEN, 1, self._key, token, ms, sent=Sent()))

    async def _first_that_works(self, what: str, ways: Sequence[Sequence[Any]], sent: Sent) -> tuple[int, Any]:
        first = self._known.ways.get(what, 0)
        refusals: list[NotHere] = []
        for number in sorted(range(len(ways)), key=lambda each: each != first):
            try:
                reply = await self._ask(*ways[number], sent=sent)
            except NotHere as refusal:
                refusals.append(refusal)
                continue
            if all(refusal.lasts for refusal in refusals):
                self._known.ways[what] = number
            return number, reply
        raise StoreError(
            f"none of the ways to {what} a lock works here: " + " | ".join(map(str, refusals))
        ) from refusals[-1].__cause__

    async def _ask(self, *words: Any, sent: Sent | None = None) -> Any:
        """Send one command, once more if its reply is lost; errors of the client become those of this library.

        Args:
            words: the command.
            sent: notes whether it was sent again; None if it must not be, beyond what the client does.
        """
        name = CommandName(words[0])
        # Bytes, whatever decode_responses says, and those of SET not made into a bool.
        how = {"NEVER_DECODE": True, "get": True} if name == "SET" else {"NEVER_DECODE": True}
        try:
            return await self._client.execute_command(name, *words[1:], **how)
        except Exception as error:
            failure = translated(error, name, self._key)
            if failure is None:
                raise
            if isinstance(failure, LostReply):
                self._known.ways.clear()  # another server may answer the next time
            if not isinstance(failure, LostReply) or sent is None or sent.again or name.times > 1:
                raise failure from error
            name.times += 1
        finally:
            if sent is not None:
                sent.again = sent.again or name.times > 1
        return await self._ask(*words, sent=sent)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._key!r}>"
