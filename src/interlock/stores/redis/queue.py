"""The queue on a Redis server: every step of the line is one script, hence one round trip."""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any
from uuid import uuid4

from interlock._redis.errors import Moving, Passing, Redirected, Refused, refusal
from interlock._redis.keys import EVERY_LINE, key_of, keys_of_line, line_of, pattern_of
from interlock._redis.message import ConnectionEnded, Denied, Message, NoAnswer, Unreachable
from interlock._redis.pipeline import ask_all
from interlock._redis.resp import ReplyError, ended_by
from interlock._redis.scripts import ENTER, EVICT, LEAVE, LOOK, RENEW, call, prefix, with_source
from interlock.core.claims import SEPARATOR, Claim, ClaimView, LockSpec, namespace_of
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import GONE, INDETERMINATE, OCCUPIED, REFUSED, EnterResult, Outage, Renewed
from interlock.core.store import BaseStore
from interlock.runtime.log import warn
from interlock.runtime.process import HOST, WeakRegistry, in_forked_child, pid
from interlock.stores.redis.views import lines_like, views_of
from interlock.stores.redis.waiters import RedisWaiters

LOOK_AGAIN = 5.0  # seconds; a look at the latest after so long, in case that a message was missed
FORGET_AFTER = 60.0  # seconds
CUTS = 5  # so many connections may end in a row while a claim leaves, besides the first
CHANNEL = "interlock:wake:"
AT_ONCE = 100  # claims renewed by one call
RECOVERY = 60.0  # seconds; Cluster and Sentinel need 15 and 30 by default to find out that a server is away
FIRST_CONTACT = 2.0  # seconds; where nothing was ever done, the address is probably wrong
FOR_OPERATORS = ("OOM", "MISCONF")  # what does not pass by itself
GONE_THERE, REFUSED_THERE, PENDING_THERE = -1, 0, -10
REMOVED, MORE, UNHEARD = 1, 2, 4  # bits of the answer to leave
TRY, LOOK_FIRST, WAIT, AGAIN = b"t", b"o", b"w", b"a"


def fresh_channel() -> str:
    """Return the name of a channel that nobody else listens to."""
    return CHANNEL + uuid4().hex


class RequestState:
    """What is known of a claim whose last request failed.

    Attributes:
        indeterminate: True if the server may have the claim.
        cut: True if the server could not be reached the last time.
        refused: True if the server answered the last time, and did nothing.
    """

    __slots__ = ("cut", "indeterminate", "refused")

    def __init__(self) -> None:
        self.indeterminate = False
        self.cut = False
        self.refused = False


class RedisQueue(BaseStore):
    """The part of the store that both colours share; the pool and the subscription give it its colour.

    Args:
        pool: what sends a message and returns its reply.
        subscription: (channel, registry) -> what hears who was promoted, and subscribes when it is asked.
        release: closes the client that was made for the store; None if the client is the program's own. For
            tasks it is told whether all is `closing`, or the running loop ends.
    """

    def __init__(
        self, pool: Any, subscription: Callable[[str, RedisWaiters], Any], release: Callable[..., Any] | None
    ) -> None:
        self._pool = pool
        self._registry = RedisWaiters()
        self._channel = fresh_channel()
        self._subscription = subscription(self._channel, self._registry)
        pool.moved = self._subscription.distrust
        self._release = release
        self._unheard = False
        self._answered = False  # whether the server ever did what it was asked
        self._unsent: dict[str, float] = {}
        self._requests: dict[str, RequestState] = {}
        self._enter_of = lru_cache(4096)(self._start_of_enter)
        self._leave_of = lru_cache(4096)(self._start_of_leave)
        _open.add(self)

    @property
    def _waits(self) -> bool:
        """False while no claim waits, nor failed to: then nothing is kept about any."""
        return bool(self._registry or self._unsent or self._requests)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()
        self._registry.wake_all()  # so that each waiter here finds it closed
        self._subscription.close()

    def _start_afresh(self) -> None:
        """In a forked child: share nothing with the parent."""
        self._pool.reset()
        self._registry.start_afresh()
        self._channel = self._subscription.reset(fresh_channel())
        self._enter_of.cache_clear()
        self._leave_of.cache_clear()

    def _start_of_enter(self, spec: LockSpec, who: str, mode: bytes) -> tuple[bytes, str]:
        """Return what stays the same when a thread enters with the same spec again and again, and the line."""
        line = line_of(spec.key)
        ttl = str(int(spec.ttl * 1000 + 0.999))
        thread = who.replace("\n", " ")
        about = f"{HOST}\n{pid()}\n{thread}\n{spec.label}"
        fixed = (ttl, str(spec.units), str(spec.capacity), self._channel, mode, about)
        return prefix(ENTER, keys_of_line(line), fixed, 1), line

    def _start_of_leave(self, spec: LockSpec) -> tuple[bytes, bytes, str]:
        """Return what stays the same when a claim leaves, without and with a successor, and the line."""
        line = line_of(spec.key)
        start = prefix(LEAVE, keys_of_line(line), (self._channel,), 2)
        return ended_by(start, ""), start, line

    def _mode(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> bytes:
        if again:
            return AGAIN
        if not wait:
            return TRY
        if wakeup is None:
            if not self._subscription.live:
                return LOOK_FIRST  # a claim enters the line when its process listens
            self._registry.expect(claim.id)
        return WAIT

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        if wakeup is not None:
            recheck_after, granted = self._registry.register(claim.id, wakeup)
            if granted is not None:
                return EnterResult("using", granted.fence, asked=False)
            if not self._subscription.live:
                try:
                    yield Ask(self._subscription, None)
                except StoreError as error:
                    return self._on_error(claim, error, again, wait, waits=True)
            elif recheck_after:
                return EnterResult("pending", 0, recheck_after, asked=False)  # it stands in line since a moment ago
        try:
            start, line = self._enter_of(claim.spec, claim.who, self._mode(claim, wakeup, wait, again))
            reply = yield Ask(self._pool, Message(ended_by(start, claim.id), line, claim.id))
        except StoreError as error:
            return self._on_error(claim, error, again, wait, waits=wakeup is not None)
        return self._result_of(claim, reply, wait, again)

    def _result_of(self, claim: Claim, reply: Any, wait: bool, again: bool) -> EnterResult:
        """Translate the answer of the script."""
        self._answered = True
        if self._requests:
            self._requests.pop(claim.id, None)
        if type(reply) is list:
            reply, before, fence = reply
            self._registry.follow(before.decode(), claim.id, fence)
        if reply > 0:
            if again and self._registry.has_wakeup(claim.id):
                # it waited and was not told: perhaps nobody of this process is told any more
                self._subscription.suspect()
            self._registry.holds(claim.id)
            return EnterResult("using", reply)
        if reply <= PENDING_THERE:
            io_timeout = min(LOOK_AGAIN, (PENDING_THERE - reply) / 1000) * random.uniform(1.0, 1.1)
            self._registry.wait_so_long(claim.id, io_timeout)
            return EnterResult("pending", 0, io_timeout)
        self._registry.withdraw(claim.id)
        if reply == GONE_THERE:
            self._leave_late(claim)
            return GONE
        if wait:
            return OCCUPIED
        self._leave_late(claim)
        return REFUSED

    def _leave_late(self, claim: Claim) -> bool:
        """See that no request that had no answer puts a claim into the line that is over."""
        if not self._pool.has_late:
            return False
        start, _, _ = self._leave_of(claim.spec)
        late: bool = self._pool.leave_late(claim.id, with_source(ended_by(start, claim.id)))  # nobody hears NOSCRIPT
        return late

    def _on_error(self, claim: Claim, error: StoreError, again: bool, wait: bool, waits: bool) -> EnterResult:
        """Decide about a claim whose request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted.
        """
        if wait:
            return self._retry_later(claim, error, again, waits)
        self._mark(claim, error, again)
        raise error

    def _retry_later(self, claim: Claim, error: StoreError, again: bool, waits: bool) -> EnterResult:
        """Decide about a claim that wants to wait and whose request failed: a server that is away may come back.

        Raises:
            StoreError: waiting does not help.
        """
        if isinstance(error, Moving):
            if not again:
                self._registry.withdraw(claim.id)  # nothing was done, and who gives up now has nothing to leave
            return _slot_moves()  # as if somebody else had the lock
        before = self._requests.get(claim.id)
        seen = before is not None and before.indeterminate
        in_line = again or (waits and seen)  # whoever listens, and had no answer, may stand in line too
        self._mark(claim, error, again)
        if not self._may_pass(error, in_line):
            raise error
        outage = Outage(error, self._recovery(claim, error))
        if not in_line and not seen and isinstance(error, UnknownOutcome):
            return INDETERMINATE._replace(outage=outage)  # that may have been the connection only
        return EnterResult("busy" if in_line else "indeterminate", 0, random.uniform(0.2, 0.4), False, outage)

    def _may_pass(self, error: StoreError, in_line: bool) -> bool:
        if isinstance(error, Redirected):
            return bool(self._pool.follows)
        if isinstance(error, Passing):
            return in_line or error.code not in FOR_OPERATORS
        return isinstance(error, (UnknownOutcome, Unreachable)) and not isinstance(error, Denied)

    def _recovery(self, claim: Claim, error: StoreError) -> float:
        """Return how long a server that is away is waited for without a limit."""
        if self._answered or (isinstance(error, Passing) and error.code != "READONLY"):
            return max(RECOVERY, claim.spec.ttl)
        return FIRST_CONTACT

    def _mark(self, claim: Claim, error: StoreError, again: bool) -> None:
        """Keep what is known of a claim whose request failed."""
        request = self._requests.get(claim.id)
        if request is None:
            request = self._requests[claim.id] = RequestState()
        request.indeterminate = request.indeterminate or again or isinstance(error, UnknownOutcome)
        # A server that lets in no more connections may still have those that are open.
        request.cut = isinstance(error, Unreachable) and not (request.indeterminate and isinstance(error, Denied))
        request.refused = isinstance(error, Refused)

    def _on_first_error(self, claim: Claim, error: StoreError, again: bool, wait: bool) -> EnterResult:
        """Decide about a claim whose first request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted and it was not done.
        """
        if wait:
            return self._retry_later(claim, error, again, waits=False)
        self._mark(claim, error, again)
        if isinstance(error, UnknownOutcome):
            return INDETERMINATE
        raise error

    def _nothing_to_say(self, claim: Claim) -> None:
        """Keep that the server need not be told that a claim leaves, as long as somebody may try."""
        now = monotonic()
        for id, moment in list(self._unsent.items()):
            if now - moment > FORGET_AFTER:
                self._unsent.pop(id, None)
        self._unsent[claim.id] = now

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        request = self._forget(claim)
        if request is not None and (request.cut or (request.refused and not request.indeterminate)):
            self._nothing_to_say(claim)
            if request.indeterminate:
                raise Unreachable("the server can't be reached; the claim will go when its lease ends, if not before")
            return False
        if self._unsent.pop(claim.id, None) is not None:
            return False
        if self._leave_late(claim) and request is not None:
            self._nothing_to_say(claim)
            raise NoAnswer("the server does not answer; the claim will go when its lease ends, if not before")
        start, _, line = self._leave_of(claim.spec)
        message = Message(ended_by(start, claim.id), line)
        try:
            reply = yield Ask(self._pool, message)
        except (NoAnswer, Unreachable):
            if request is not None:
                self._nothing_to_say(claim)
            raise
        except ConnectionEnded:
            return (yield from self._leave_again(message, None, CUTS))
        return (yield from self._left_all(message, reply, None))

    def _left_all(self, message: Message, reply: Any, successor: str | None) -> Op[bool]:
        """As `_left`, and let the server promote the others whose turn has come, if they are many."""
        removed = self._left(reply, successor)
        while _code(reply) & MORE:
            reply = yield from self._ask(message)
            self._left(reply, None)
        return removed

    def _left_unheard(self, successor: str | None) -> None:
        """Look after a leave whose answer nobody will read: it says who was promoted, and what a promise is worth."""
        self._registry.wake_all()
        if successor is not None:
            self.doubt(successor)

    def _leave_again(self, message: Message, successor: str | None, times: int) -> Op[bool]:
        """Ask again, on other connections: an earlier request may have done it, so the answer is yes."""
        for more in reversed(range(times)):
            try:
                yield from self._left_all(message, (yield Ask(self._pool, message)), successor)
            except ConnectionEnded:  # a successor may be at work meanwhile, and cut this one too
                if not more:
                    self._left_unheard(successor)
                    raise
            except BaseException:
                self._left_unheard(successor)
                raise
            else:
                break
        self._registry.wake_all()  # the reply that was lost said who was promoted
        return True

    def _ask(self, message: Message) -> Op[Any]:
        """Ask what may be asked twice."""
        try:
            return (yield Ask(self._pool, message))
        except (ConnectionEnded, NoAnswer):  # the connection may have been forgotten on the way, the server be there
            return (yield Ask(self._pool, message))

    def _forget(self, claim: Claim) -> "RequestState | None":
        """Forget a claim that leaves; return what was the matter with it."""
        self._registry.withdraw(claim.id)
        return self._requests.pop(claim.id, None)

    def _released(self, claim: Claim) -> tuple[bytes, str, str | None, bool]:
        """Let the successor of a grant's claim in.

        The claim held the lock. So the server has it, even if its requests failed while it waited, and must be told.

        Returns:
            The command to leave, which names the successor if one was let in; the line; the successor's claim;
            whether another connection was told to leave too, and may have done it before.
        """
        start, start_with_successor, line = self._leave_of(claim.spec)
        if not self._waits and not self._pool.has_late:
            return ended_by(start, claim.id), line, None, False
        self._requests.pop(claim.id, None)
        self._unsent.pop(claim.id, None)
        if self._leave_late(claim):
            self._registry.withdraw(claim.id)  # the server chooses who is next: which leave comes first is not known
            return ended_by(start, claim.id), line, None, True
        successor = self._registry.pass_on(claim.id)
        if successor is None:
            return ended_by(start, claim.id), line, None, False
        id, fence = successor
        return ended_by(ended_by(start_with_successor, f"{id} {fence}"), claim.id), line, id, False

    def _left_or_late(self, removed: bool, late: bool) -> bool:
        """Return whether a claim was released, of which another connection was perhaps told first."""
        if late and not removed:
            self._registry.wake_all()  # nobody read the reply that said who was promoted
        return removed or late

    def _left(self, reply: Any, successor: str | None) -> bool:
        """Take the answer to leave: tell those of this process who were promoted by it.

        Args:
            reply: the answer.
            successor: the claim that was let in before the server was told; None if none was.
        """
        granted: list[Any] = [] if type(reply) is int else reply[1:]
        removed = _code(reply) & REMOVED != 0
        if _code(reply) & UNHEARD and not self._unheard:
            self._unheard = True
            warn("this user may not publish: who waits in other processes hears late, by its own look (+publish)")
        for place in range(0, len(granted), 2):
            self._registry.notify(granted[place].decode(), granted[place + 1])
        if successor is not None and self._registry.is_void(removed):
            # The server no longer had the claim that let it in: what it promised to those behind may be void.
            self.doubt(successor)
            self._registry.wake_all()
        return removed

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        batches = self._pool.batches(claims, AT_ONCE)
        replies = yield from ask_all(self._pool, [self._renewal(batch) for batch in batches])
        answers: dict[str, Renewed] = {}
        for batch, reply in zip(batches, replies, strict=True):
            if isinstance(reply, StoreError):  # it is not the fault of the others
                answers |= {claim.id: reply for claim in batch}
            else:
                answers |= {claim.id: _renewed(claim, word) for claim, word in zip(batch, reply, strict=True)}
        return [answers[claim.id] for claim in claims]

    def _renewal(self, batch: Sequence[Claim]) -> Message:
        """Return the call that renews claims."""
        # An attempt that gets no answer must leave time for others before the lease ends.
        io_timeout = min(self._subscription.io_timeout, *(claim.spec.ttl / 3 for claim in batch))
        keys: list[str] = []
        words: list[str] = []
        for claim in batch:
            keys += keys_of_line(line_of(claim.spec.key))
            words += (claim.id, str(int(claim.spec.ttl * 1000 + 0.999)))
        return Message(call(RENEW, tuple(keys), *words), keys[0], io_timeout=io_timeout)

    def node_of(self, claim: Claim) -> object:
        """As `stores.base.BaseStore.node_of`."""
        try:
            node: object = self._pool.node_of(line_of(claim.spec.key))
        except StoreError:  # whoever asks is told
            return None
        return node

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        lines = [line_of(key)]
        if key.endswith(SEPARATOR):
            lines = yield from lines_like(self._pool, pattern_of(key[:-1]))
        views: list[ClaimView] = []
        for line in lines:
            views += yield from self._views(line)
        return views

    def namespaces(self) -> Op[list[str]]:
        """As `BaseStore.namespaces`; a line that nobody is in may still be there for its fence."""
        found: list[str] = []
        for line in (yield from lines_like(self._pool, EVERY_LINE)):
            namespace = namespace_of(key_of(line))
            if namespace not in found and (yield from self._views(line)):
                found.append(namespace)
        return found

    def _views(self, line: str) -> Op[list[ClaimView]]:
        return views_of(line, (yield from self._ask(Message(call(LOOK, keys_of_line(line)), line))))

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        line = line_of(key)
        reply = yield from self._ask(Message(call(EVICT, keys_of_line(line), id or ""), line))
        if type(reply) is int:
            return reply
        rest = Message(call(LEAVE, keys_of_line(line), self._channel, "", fresh_channel()), line)  # nobody's claim
        yield from self._left_all(rest, MORE, None)
        count: int = reply[0]
        return count


def _renewed(claim: Claim, word: Any) -> Renewed:
    """Translate the answer of the script for one claim: a number, or what was wrong with its keys."""
    if type(word) is int:
        return word == 1
    return refusal(ReplyError(word.decode(errors="replace")), "the server", line_of(claim.spec.key))


def _code(reply: Any) -> int:
    """Return the number in an answer to leave."""
    code: int = reply if type(reply) is int else reply[0]
    return code


def _slot_moves() -> EnterResult:
    """Return the answer to a waiter whose lock's slot is being moved."""
    return EnterResult("busy", 0, random.uniform(0.02, 0.06), asked=False)


_open: WeakRegistry[RedisQueue] = WeakRegistry()


def _after_fork() -> None:
    for store in _open:
        store._start_afresh()


in_forked_child(_after_fork)
