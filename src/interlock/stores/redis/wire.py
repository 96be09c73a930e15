"""The Redis commands and Lua scripts of the steps, and the parsing of replies.

Each script is one atomic step of the line, in its own file, and is preceded by `scripts/line.lua`, which reads and
writes the line.  `enter` and `leave` begin with a short cut for the common cases that uses no function of `line.lua`:
the server pays for each function it defines.
"""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache
from pkgutil import get_data  # importlib.resources loads a dozen modules
from typing import cast

from interlock.core.claims import SEPARATOR, Claim, ClaimView, LockSpec, record_view
from interlock.core.line import unchecked
from interlock.core.queue import BUSY, RUN_ALREADY_DONE, EnterResult, Renewed
from interlock.runtime.process import HOST, pid
from interlock.storekit.wire import NOT_THERE, REMOVED, LeaveResult, Mode, QueuedBehind
from interlock.stores.redis.errors import refusal
from interlock.stores.redis.keys import line_of
from interlock.stores.redis.resp import RedisCommand, Reply, begun, ended, pack

REPLY_GONE, REPLY_DONE, REPLY_UNFINISHED, REPLY_PENDING = -1, -2, -3, -10
DEAF_LOOK = 0.1  # seconds between two polls of a waiter that gets no notifications
REMOVED_BIT, MORE_BIT = 1, 2


SOURCES: dict[bytes, bytes] = {}
"""The text of each script by its SHA-1, for EVALSHA."""


def _script(*names: str) -> bytes:
    """Return the SHA-1 of a script; its parts are files of this package."""
    text = b"\n".join([cast(bytes, get_data(__package__, f"scripts/{name}.lua")) for name in names])
    sha = hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()
    SOURCES[sha] = text
    return sha


ENTER = _script("enter_short", "line", "enter")
LEAVE = _script("leave_short", "line", "leave")
RENEW_SCRIPT, ADOPT_SCRIPT, EVICT_SCRIPT, LOOK_SCRIPT, RUN_RESULT_SCRIPT = [
    _script("line", each) for each in ("renew", "adopt", "evict", "look", "kept")
]
_CALL = re.compile(rb"\r\n\$7\r\nEVALSHA\r\n\$40\r\n([0-9a-f]{40})")


def with_source(command: bytes) -> bytes:
    """Replace EVALSHA by EVAL with the source, for a server without the script.

    Of several commands with one script only the first is replaced, which loads the script for the others.
    """
    return _CALL.sub(_source, command, 1)


def _source(call: re.Match[bytes]) -> bytes:
    text = SOURCES.get(call[1])
    if text is None:  # the text of a label that resembles a call
        return call[0]
    return b"\r\n$4\r\nEVAL\r\n$%d\r\n%s" % (len(text), text)


class RedisWire:
    """The requests and replies of Redis, as `storekit.wire.Wire`.

    Args:
        where: the server, for messages.
        io_timeout: seconds to wait for a reply.
        replicas: the number of replicas that must confirm a grant.

    Attributes:
        deaf: True if the server or a proxy does not support SUBSCRIBE: then waiters poll.
    """

    client_notifies = False

    def __init__(self, where: str, io_timeout: float, replicas: int = 0) -> None:
        self.where = where
        self.io_timeout = io_timeout
        self._replicas = replicas
        self.deaf = False

    def enter(self, claim: Claim, mode: Mode, channel: str) -> RedisCommand:
        """Write the request of `Wire.enter`."""
        id, spec, who = claim
        start, line = _entering(spec, mode, channel)
        data = ended(start, f"{HOST}\n{pid()}\n{who}\n{spec.label}", id)
        return unchecked(RedisCommand, (data, line, 1, self._replicas))

    def entered(self, reply: Reply) -> EnterResult | QueuedBehind | None:
        """Read the reply of `Wire.entered`."""
        if type(reply) is list:
            first, *rest = reply
            if first > 0:
                return EnterResult("using", first, slot=rest[0])
            return QueuedBehind(rest[0].decode(), rest[1], self._pause(first))
        if reply > 0:
            return unchecked(EnterResult, ("using", reply, 0.0, True, None, 0, None))
        if reply <= REPLY_PENDING:
            return unchecked(EnterResult, ("pending", 0, self._pause(reply), True, None, 0, None))
        return RUN_ALREADY_DONE if reply == REPLY_DONE else BUSY if reply == REPLY_UNFINISHED else None

    def _pause(self, answer: int) -> float:
        pause = (REPLY_PENDING - answer) / 1000
        return min(pause, DEAF_LOOK) if self.deaf else pause

    def leave(
        self,
        claim: Claim,
        channel: str = "",
        let_in: str = "",
        keep_for: float = 0.0,
        stored_result: str = "",
        before: Sequence[str] = (),
    ) -> RedisCommand:
        """Write the request of `Wire.leave`."""
        if keep_for:
            line = line_of(claim.spec.key)
            return _call(LEAVE, line, _milliseconds(keep_for), channel, let_in, claim.id, stored_result, *before)
        start, alone, line = _leaving(claim.spec.key, channel)
        data = ended(start, let_in, claim.id) if let_in else ended(alone, claim.id)
        return unchecked(RedisCommand, (data, line, 1, 0))

    def left(self, reply: Reply) -> LeaveResult:
        """Read the reply of `Wire.left`."""
        if reply == REMOVED_BIT:
            return REMOVED
        if reply == 0:
            return NOT_THERE
        code, *told = reply if type(reply) is list else (reply,)
        promoted = [
            (id.decode(), fence if type(fence) is int else int(fence), int(slot))
            for id, fence, slot in zip(told[::3], told[1::3], told[2::3], strict=True)
        ]
        return LeaveResult(bool(code & REMOVED_BIT), promoted, bool(code & MORE_BIT))

    def renew(self, claims: Sequence[Claim], before: Sequence[Sequence[str]]) -> RedisCommand:
        """Write the request of `Wire.renew`, with one command per claim to separate errors."""
        about = [
            (line_of(claim.spec.key), claim.id, _milliseconds(claim.spec.ttl), *ids)
            for claim, ids in zip(claims, before, strict=True)
        ]
        data = b"".join([_call(RENEW_SCRIPT, *each).data for each in about])
        return RedisCommand(data, about[0][0], len(claims))

    def renewed(self, claims: Sequence[Claim], reply: Reply) -> list[Renewed]:
        """Read the reply of `Wire.renewed`."""
        return [
            each if type(each) is int else refusal(each, self.where, line_of(claim.spec.key))
            for claim, each in zip(claims, reply if len(claims) > 1 else [reply], strict=True)
        ]

    def run_result(self, key: str, delete: bool) -> RedisCommand:
        """Write the request of `Wire.run_result`."""
        return _call(RUN_RESULT_SCRIPT, line_of(key), "forget" if delete else "")

    def value(self, reply: Reply) -> str | None:
        """Read the reply of `Wire.value`."""
        return None if reply is None else str(reply.decode())

    def adopt(self, key: str, id: str, claim: Claim, channel: str, before: Sequence[str] = ()) -> RedisCommand:
        """Write the request of `Wire.adopt`."""
        return _call(
            ADOPT_SCRIPT,
            line_of(key),
            id,
            claim.id,
            _milliseconds(claim.spec.ttl),
            channel,
            f"{HOST}\n{pid()}\n{claim.who}\n{claim.spec.label}",
            str(claim.spec.units),
            *before,
        )

    def adopted(self, reply: Reply) -> tuple[int, int] | EnterResult | None:
        """Read the reply of `Wire.adopted`."""
        if type(reply) is list:
            return reply[0], reply[1]
        return None if reply == REPLY_GONE else BUSY if reply == REPLY_UNFINISHED else (reply, 0)

    def evict(self, key: str, id: str | None, rest: Sequence[str] = ("", "")) -> RedisCommand:
        """Write the request of `Wire.evict`."""
        return _call(EVICT_SCRIPT, line_of(key), id or "", *rest)

    def evicted(self, reply: Reply) -> tuple[int, bool, Sequence[str]]:
        """Read the reply of `Wire.evicted`."""
        count, *rest = reply if type(reply) is list else (reply,)
        return count, type(reply) is list, [each.decode() for each in rest]

    def look(self, key: str) -> RedisCommand:
        """Write a request for the claims of a line."""
        return _call(LOOK_SCRIPT, line_of(key))

    def views(self, key: str, reply: Reply) -> list[ClaimView]:
        """Read the reply: the live claims in order."""
        now, flat = int(reply[0]), reply[1]
        name = key.partition(SEPARATOR)[2]
        found = [
            (int(record.split(b" ", 5)[4]), _view(name, field[1:].decode(), record.decode(errors="replace"), now))
            for field, record in zip(flat[::2], flat[1::2], strict=True)
            if field[:1] == b"@" and record.count(b" ") >= 11
        ]
        views = [view for _, view in sorted(found, key=lambda each: each[0]) if view.expires_in > 0]
        done = next((int(until) for field, until in zip(flat[::2], flat[1::2], strict=True) if field == b"done"), 0)
        return [*views, record_view(key, (done - now) / 1000)] if done > now else views


def _milliseconds(seconds: float) -> str:
    return str(int(seconds * 1000 + 0.999))


def _call(script: bytes, line: str, *words: str) -> RedisCommand:
    return RedisCommand(pack(b"EVALSHA", script, b"1", line, *words), line)


@lru_cache(4096)
def _entering(spec: LockSpec, mode: Mode, channel: str) -> tuple[bytes, str]:
    """Return the common beginning of `enter` for a spec, and the line."""
    line = line_of(spec.key)
    words = (
        _milliseconds(spec.ttl), str(spec.units), str(spec.capacity), "1" if spec.once else "0", channel, mode,
    )  # fmt: skip
    return begun(2, b"EVALSHA", ENTER, b"1", line, *words), line


@lru_cache(4096)
def _leaving(key: str, channel: str) -> tuple[bytes, bytes, str]:
    """Return the beginning of `leave` for a name, with and without `let_in`, and the line."""
    line = line_of(key)
    start = begun(2, b"EVALSHA", LEAVE, b"1", line, "0", channel)
    return start, ended(start, ""), line


def _view(name: str, id: str, record: str, now: int) -> ClaimView:
    state, ends, units, capacity, fence, _, _, held, _, since, _, rest = record.split(" ", 11)
    left = int(ends) - now
    host, process, who, label = rest.split("\n", 3)
    holds = state == "u"
    return ClaimView(
        name=name,
        id=id,
        state="using" if holds else "pending",
        units=int(units),
        capacity=int(capacity),
        fence=int(fence) if holds else None,
        host=host,
        pid=int(process),
        thread=who,
        label=label,
        since=int(since) / 1000,
        expires_in=min(left, max(1, left - 1)) / 1000,  # the server rounds up
        held_since=int(held) / 1000 if holds else None,
    )
