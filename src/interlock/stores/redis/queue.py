"""The queue on a Redis server: every step of the line is one script, hence one round trip."""

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any
from uuid import uuid4

from interlock._redis.errors import Moving
from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.message import ConnectionEnded, Message, NoAnswer, Unreachable
from interlock._redis.resp import ended_by
from interlock._redis.scripts import ENTER, EVICT, LEAVE, call, prefix, with_source
from interlock.core.claims import Claim, ClaimView, LockSpec
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import GONE, INDETERMINATE, OCCUPIED, REFUSED, EnterResult, Outage, Renewed
from interlock.core.oldstore import BaseStore
from interlock.runtime.log import warn
from interlock.runtime.process import HOST, WeakRegistry, in_forked_child, pid
from interlock.stores.redis.failed import (
    FailedRequests,
    RequestState,
    Unsent,
    ask_twice,
    may_pass,
    recovery,
    slot_moves,
)
from interlock.stores.redis.renewal import renew_all
from interlock.stores.redis.views import claims_of, namespaces_in
from interlock.stores.redis.waiters import RedisWaiters

LOOK_AGAIN = 5.0  # seconds; a look at the latest after so long, in case that a message was missed
CUTS = 5  # so many connections may end in a row while a claim leaves, besides the first
CHANNEL = "interlock:wake:"
GONE_THERE, REFUSED_THERE, PENDING_THERE = -1, 0, -10
REMOVED, MORE, UNHEARD = 1, 2, 4  # bits of the answer to leave
TRY, LOOK_FIRST, WAIT, AGAIN = b"t", b"o", b"w", b"a"


def fresh_channel() -> str:
    """Return the name of a channel that nobody else listens to."""
    return CHANNEL + uuid4().hex


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
        self._unsent = Unsent()
        self._requests = FailedRequests()
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
        self._requests.note(claim.id, error, again)
        raise error

    def _retry_later(self, claim: Claim, error: StoreError, again: bool, waits: bool) -> EnterResult:
        """Decide about a claim that wants to wait and whose request failed: a server that is away may come back.

        Raises:
            StoreError: waiting does not help.
        """
        if isinstance(error, Moving):
            if not again:
                self._registry.withdraw(claim.id)  # nothing was done, and who gives up now has nothing to leave
            return slot_moves()  # as if somebody else had the lock
        before = self._requests.get(claim.id)
        seen = before is not None and before.indeterminate
        in_line = again or (waits and seen)  # whoever listens, and had no answer, may stand in line too
        self._requests.note(claim.id, error, again)
        if not may_pass(error, in_line, self._pool.follows):
            raise error
        outage = Outage(error, recovery(claim, error, self._answered))
        if not in_line and not seen and isinstance(error, UnknownOutcome):
            return INDETERMINATE._replace(outage=outage)  # that may have been the connection only
        return EnterResult("busy" if in_line else "indeterminate", 0, random.uniform(0.2, 0.4), False, outage)

    def _on_first_error(self, claim: Claim, error: StoreError, again: bool, wait: bool) -> EnterResult:
        """Decide about a claim whose first request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted and it was not done.
        """
        if wait:
            return self._retry_later(claim, error, again, waits=False)
        self._requests.note(claim.id, error, again)
        if isinstance(error, UnknownOutcome):
            return INDETERMINATE
        raise error

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        request = self._forget(claim)
        if request is not None and (request.cut or (request.refused and not request.indeterminate)):
            self._unsent.note(claim.id)
            if request.indeterminate:
                raise Unreachable("the server can't be reached; the claim will go when its lease ends, if not before")
            return False
        if self._unsent.pop(claim.id, None) is not None:
            return False
        if self._leave_late(claim) and request is not None:
            self._unsent.note(claim.id)
            raise NoAnswer("the server does not answer; the claim will go when its lease ends, if not before")
        start, _, line = self._leave_of(claim.spec)
        message = Message(ended_by(start, claim.id), line)
        try:
            reply = yield Ask(self._pool, message)
        except (NoAnswer, Unreachable):
            if request is not None:
                self._unsent.note(claim.id)
            raise
        except ConnectionEnded:
            return (yield from self._leave_again(message, None, CUTS))
        return (yield from self._left_all(message, reply, None))

    def _left_all(self, message: Message, reply: Any, successor: str | None) -> Op[bool]:
        """As `_left`, and let the server promote the others whose turn has come, if they are many."""
        removed = self._left(reply, successor)
        while _code(reply) & MORE:
            reply = yield from ask_twice(self._pool, message)
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

    def _forget(self, claim: Claim) -> RequestState | None:
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
        return renew_all(self._pool, claims, self._subscription.io_timeout)

    def node_of(self, claim: Claim) -> object:
        """As `stores.base.BaseStore.node_of`."""
        try:
            node: object = self._pool.node_of(line_of(claim.spec.key))
        except StoreError:  # whoever asks is told
            return None
        return node

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        return claims_of(self._pool, key)

    def namespaces(self) -> Op[list[str]]:
        """As `BaseStore.namespaces`; a line that nobody is in may still be there for its fence."""
        return namespaces_in(self._pool)

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        line = line_of(key)
        reply = yield from ask_twice(self._pool, Message(call(EVICT, keys_of_line(line), id or ""), line))
        if type(reply) is int:
            return reply
        rest = Message(call(LEAVE, keys_of_line(line), self._channel, "", fresh_channel()), line)  # nobody's claim
        yield from self._left_all(rest, MORE, None)
        count: int = reply[0]
        return count


def _code(reply: Any) -> int:
    """Return the number in an answer to leave."""
    code: int = reply if type(reply) is int else reply[0]
    return code


_open: WeakRegistry[RedisQueue] = WeakRegistry()


def _after_fork() -> None:
    for store in _open:
        store._start_afresh()


in_forked_child(_after_fork)
