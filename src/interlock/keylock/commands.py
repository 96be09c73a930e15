"""What is asked of the server, in the best way that it has: its capabilities are found out by trying.

Valkey 9 has `DELIFEQ key token`, Redis 8.4 `DELEX key IFEQ token`; both have `SET key token IFEQ token PX ms`.
Elsewhere a Lua script compares, as in https://redis.io/docs/latest/commands/set/. What worked is remembered for the
client's server, and tried first the next time; if it does not work any more, because the server was changed or the
user's permissions were, the others are tried again.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from interlock._redis.errors import given_code
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError
from interlock.keylock.faults import LostReply, NotHere, translated
from interlock.keylock.server import Command, KeyServer
from interlock.keylock.tries import Tries

T = TypeVar("T")


class Script:
    """A Lua script, sent by its hash, and whole where the server does not know it yet."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.hash = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


DROP = Script("""\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0""")
EXTEND = Script("""\
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0""")
LENGTHEN = Script("""\
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local left = redis.call('PTTL', KEYS[1])
if left < 0 then return 0 end
return redis.call('PEXPIRE', KEYS[1], left + ARGV[2])""")


def take(
    server: KeyServer, key: str | bytes, token: bytes, ms: int | None, once: bool, tries: Tries | None = None
) -> Op[bool]:
    """Make `token` the value of `key` if that does not exist.

    Args:
        server, key: where.
        token: what to write.
        ms: milliseconds until the key expires; None for never.
        once: True if nobody else ever writes this token, so that a key that has it was taken by this very step: the
            reply was lost, and the client has asked again by itself.
        tries: notes whether it was sent again.

    Returns:
        True if the key is now the caller's.
    """
    words = ("SET", key, token, "NX", *(() if ms is None else ("PX", ms)))

    def plain() -> Op[bool]:
        return (yield from ask(server, *words, tries=tries)) is not None

    def at_once() -> Op[bool]:
        found = yield from ask(server, *words, "GET", tries=tries)
        return found is None or as_bytes(found) == token

    def in_two() -> Op[bool]:  # Redis 6 and older refuse GET beside NX
        return (yield from plain()) or (yield from holder(server, key)) == token

    return (yield from _first_that_works(server, "take", (at_once, in_two))) if once else (yield from plain())


def drop(server: KeyServer, key: str | bytes, token: bytes, tries: Tries | None = None) -> Op[bool]:
    """Delete `key` if its value is `token`.

    Args:
        server, key, token: where, and what must be there.
        tries: notes whether it was sent again.

    Returns:
        True if the last time that it was sent deleted it.
    """
    ways = (
        lambda: ask(server, "DELIFEQ", key, token, tries=tries),
        lambda: ask(server, "DELEX", key, "IFEQ", token, tries=tries),
        lambda: _script(server, DROP, key, token, tries=tries),
    )
    return bool((yield from _first_that_works(server, "drop", ways)))


def extend(server: KeyServer, key: str | bytes, token: bytes, ms: int) -> Op[bool]:
    """Let `key` expire in `ms` milliseconds from now if its value is `token`; return whether it is."""
    ways = (
        lambda: ask(server, "SET", key, token, "IFEQ", token, "PX", ms),
        lambda: _script(server, EXTEND, key, token, ms),
    )
    return bool((yield from _first_that_works(server, "extend", ways)))


def lengthen(server: KeyServer, key: str | bytes, token: bytes, ms: int) -> Op[bool]:
    """Let `key` expire `ms` milliseconds later if its value is `token` and it expires; return whether it does."""
    return bool((yield from _script(server, LENGTHEN, key, token, ms)))


def holder(server: KeyServer, key: str | bytes) -> Op[bytes | None]:
    """Return the value of `key`."""
    found = yield from ask(server, "GET", key)
    return None if found is None else as_bytes(found)


def asked_again(step: Callable[[], Op[T]], tries: Tries | None = None) -> Op[T]:
    """Perform a step, once more if its reply is lost.

    Args:
        step: makes it.
        tries: notes whether it was asked again.
    """
    try:
        return (yield from step())
    except LostReply:
        if tries is not None:
            tries.again = True
        return (yield from step())


def ask(server: KeyServer, *words: Any, tries: Tries | None = None) -> Op[Any]:
    """Send one command; errors of the client become those of this library."""
    try:
        return (yield Ask(server, Command(words, tries)))
    except Exception as error:
        failure = translated(error, words[0], words[3] if words[0].startswith("EVAL") else words[1])
        if failure is None or given_code(error) == "NOSCRIPT":
            raise
        if isinstance(failure, LostReply):
            server.known.ways.clear()  # another server may answer the next time
        raise failure from error
    finally:
        if tries is not None:
            tries.note()


def as_bytes(reply: Any) -> bytes:
    """Return a reply as bytes, also of a client that decodes whatever it is told."""
    return reply if isinstance(reply, bytes) else str(reply).encode()


def _script(
    server: KeyServer, script: Script, key: str | bytes, *arguments: Any, tries: Tries | None = None
) -> Op[Any]:
    try:
        return (yield from ask(server, "EVALSHA", script.hash, 1, key, *arguments, tries=tries))
    except Exception as error:
        if given_code(error) != "NOSCRIPT":
            raise
    return (yield from ask(server, "EVAL", script.text, 1, key, *arguments, tries=tries))


def _first_that_works(server: KeyServer, what: str, ways: Sequence[Callable[[], Op[T]]]) -> Op[T]:
    first = server.known.ways.get(what, 0)
    refusals: list[NotHere] = []
    for number in (first, *(each for each in range(len(ways)) if each != first)):
        try:
            result = yield from ways[number]()
        except NotHere as refusal:
            refusals.append(refusal)
            continue
        if all(refusal.lasts for refusal in refusals):
            server.known.ways[what] = number
        return result
    # What can be mended comes first: a full server, then a missing permission.
    worst = min(refusals, key=lambda refusal: (refusal.lasts, not refusal.forbidden))
    if len(refusals) == 1 or not worst.lasts:
        raise worst
    raise StoreError(f"none of the ways to {what} a lock works here: " + " | ".join(map(str, refusals))) from worst
