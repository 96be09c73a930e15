"""Renewals on the wire: the calls for many claims go out together, and each has an answer of its own.

What is wrong with one call, one connection or one node is the answer of those whom it concerns, and of nobody else.
A renewal may be asked twice, so what can be put right at once is: a script that was forgotten, a slot that has moved,
a connection that had ended.  What can't is tried again by whoever keeps the leases, until their deadlines.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from interlock._redis.errors import Moving, Passing, Redirected, refusal
from interlock._redis.message import ConnectionEnded, Message, NoAnswer, Unreachable
from interlock._redis.resp import ReplyError, pack
from interlock._redis.scripts import with_source, without_memory
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError

WINDOW = 1 << 17  # bytes on their way to one node before its replies are read
ROUNDS = 4  # e.g. a connection that had ended, a slot that has moved, and a node that does not know the script
MENDED = ("ended", "NOSCRIPT", "OOM", "READONLY")
ASKING = pack("ASKING")


class Batch(NamedTuple):
    """Commands that are sent to one server in one go; their replies come in the same order.

    Attributes:
        messages: the commands.
        asking: True if their slot only moves to that node now.
    """

    messages: Sequence[Message]
    asking: bool = False

    def data(self) -> bytes:
        """Return what is sent."""
        start = ASKING if self.asking else b""
        return b"".join([start + message.command for message in self.messages])

    def replies(self) -> int:
        """Return how many replies come; with `asking`, the first of each two is of no interest."""
        return len(self.messages) * (2 if self.asking else 1)

    def io_timeout(self, usual: float) -> float:
        """Return how many seconds to wait for all of them."""
        return min((message.io_timeout or usual for message in self.messages), default=usual)


class Pipeline(NamedTuple):
    """As an `effects.Server`: a server to which batches are sent.

    Attributes:
        pool: its connections.
    """

    pool: Any

    def ask(self, batch: Batch) -> list[Any]:
        """Return for each message the reply, which may be a ReplyError, or a StoreError if none came."""
        replies: list[Any] = self.pool.ask_all(batch)
        return replies

    async def aask(self, batch: Batch) -> list[Any]:
        """As `ask`."""
        replies: list[Any] = await self.pool.aask_all(batch)
        return replies


class _Call:
    """One message, and how it stands with it.

    Attributes:
        message: as it goes out the next time.
        answer: the reply; a StoreError if there is none (yet).
        asked: the node that was asked.
        target: the node to ask, if the map is wrong about it.
        asking: as in `Batch`.
        met: what it has met already.
    """

    __slots__ = ("answer", "asked", "asking", "message", "met", "target")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.answer: Any = None
        self.asked: Any = None
        self.target: Any = None
        self.asking = False
        self.met: set[str] = set()


def ask_all(pool: Any, messages: Sequence[Message]) -> Op[list[Any]]:
    """Ask what may be asked twice, all at once.

    Args:
        pool: the connections to a server or a cluster.
        messages: the commands.

    Returns:
        For each the reply, or, as a value, the StoreError why there is none.
    """
    calls = [_Call(message) for message in messages]
    left = calls
    for _ in range(ROUNDS):
        for (target, asking), group in _by_target(pool, left).items():
            yield from _ask_one_server(pool.at(target), group, asking)
        left = [call for call in left if _again(pool, call)]
        if not left:
            break
    for call in calls:
        if isinstance(call.answer, Moving) and pool.follows:
            yield from _ask_in_parts(pool, call)
    if any(
        isinstance(call.answer, (Unreachable, Passing, NoAnswer, ConnectionEnded)) or call.target for call in calls
    ):
        pool.look_again_soon()
    return [call.answer for call in calls]


def _ask_in_parts(pool: Any, call: _Call) -> Op[None]:
    """Ask for what needs several keys of a name whose slot moves key by key."""
    try:
        call.answer = yield from pool.once(call.message)
    except StoreError as error:
        call.answer = error


def _by_target(pool: Any, calls: Sequence[_Call]) -> dict[tuple[Any, bool], list[_Call]]:
    """Return what goes to the same server, in its order; a call without a server is answered so."""
    groups: dict[tuple[Any, bool], list[_Call]] = {}
    for call in calls:
        try:
            target = call.target or pool.node_of(call.message.line)
        except StoreError as error:
            call.answer = error
        else:
            call.asked = target
            groups.setdefault((target, call.asking), []).append(call)
    return groups


def _windows(calls: Sequence[_Call]) -> Iterator[list[_Call]]:
    window: list[_Call] = []
    size = 0
    for call in calls:
        window.append(call)
        size += len(call.message.command)
        if size >= WINDOW:
            yield window
            window, size = [], 0
    if window:
        yield window


def _ask_one_server(pool: Any, calls: Sequence[_Call], asking: bool) -> Op[None]:
    """Send the calls, window by window; after one without an answer the others are not tried now."""
    failure: StoreError | None = None
    for window in _windows(calls):
        if failure is None:
            replies = yield Ask(Pipeline(pool), Batch([call.message for call in window], asking))
        else:
            replies = [failure] * len(window)
        forgotten = False
        for call, reply in zip(window, replies, strict=True):
            if isinstance(reply, ReplyError):
                forgotten = _refused(pool, call, reply, forgotten)
            else:
                call.answer = reply
        if isinstance(replies[-1], StoreError):
            failure = replies[-1]


def _refused(pool: Any, call: _Call, reply: ReplyError, forgotten: bool) -> bool:
    """Note a refusal, and mend the message if that helps; return whether the server has no script.

    Args:
        pool: the connections to the server.
        call: what was refused.
        reply: the refusal.
        forgotten: True if a message before it brings the script already.
    """
    call.answer = refusal(reply, pool.factory.where, call.message.line)
    command = call.message.command
    if call.answer.code == "NOSCRIPT" and not forgotten:
        call.message = call.message._replace(command=with_source(command))
    if call.answer.code == "OOM" and (excepted := without_memory(command)) is not None:
        call.message = call.message._replace(command=excepted)
    if call.answer.code == "READONLY":
        pool.drop()  # after a fail-over the old primary is a replica; connecting anew finds the new one
    return forgotten or call.answer.code == "NOSCRIPT"


def _again(pool: Any, call: _Call) -> bool:
    """Tell whether to ask once more now, and where; what went wrong in the same way twice is the answer."""
    answer = call.answer  # a server that lacks the script is asked again as before, also with ASKING
    if isinstance(answer, Redirected):
        if not pool.follows:
            return False
        call.target, call.asking = pool.target_of(answer, call.asked), answer.asking
        return True
    request = "ended" if isinstance(answer, ConnectionEnded) else getattr(answer, "code", "")
    again = request in MENDED and request not in call.met
    call.met.add(request)
    return again
