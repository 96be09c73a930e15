"""The queue on a Redis server: every step of the line is one script, hence one round trip."""

import os
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any
from uuid import uuid4

from interlock._redis.errors import Moving, Passing, Redirected, Refused, refusal
from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.message import Broken, Denied, Message, NoAnswer, Unreachable
from interlock._redis.pipeline import ask_all
from interlock._redis.resp import ReplyError, ended_by
from interlock._redis.scripts import ENTER, EVICT, LEAVE, LOOK, RENEW, call, prefix, with_source
from interlock.core.claims import SEPARATOR, Claim, ClaimView, Terms
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import GONE, OCCUPIED, REFUSED, UNCLEAR, Outage, Renewed, Turn
from interlock.runtime.log import warn
from interlock.runtime.process import HOST, Living, pid
from interlock.stores.redis.views import lines_in, views_of
from interlock.stores.redis.waiters import Bells

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


class _Trouble:
    """What is known of a claim whose last request failed.

    Attributes:
        unclear: True if the server may have the claim.
        cut: True if the server could not be reached the last time.
        refused: True if the server answered the last time, and did nothing.
    """

    __slots__ = ("cut", "refused", "unclear")

    def __init__(self) -> None:
        self.unclear = False
        self.cut = False
        self.refused = False


class RedisQueue:
    """The part of the store that both colours share; the wire and the ears give it its colour.

    Args:
        wire: what sends a message and returns its reply.
        ears: (channel, bells) -> what hears who was promoted, and subscribes when it is asked.
        release: closes the client that was made for the store; None if the client is the program's own.

    Attributes:
        doubt: called with the id of a claim that may hold the lock no more: whoever holds it is to ask at once.
    """

    def __init__(self, wire: Any, ears: Callable[[str, Bells], Any], release: Callable[[], Any] | None) -> None:
        self._wire = wire
        self._bells = Bells()
        self._channel = fresh_channel()
        self._ears = ears(self._channel, self._bells)
        wire.moved = self._ears.distrust
        self.doubt: Callable[[str], object] = _nobody_asks
        self._release = release
        self._unheard = False
        self._answered = False  # whether the server ever did what it was asked
        self._unsent: dict[str, float] = {}
        self._troubles: dict[str, _Trouble] = {}
        self._enter_of = lru_cache(4096)(self._start_of_enter)
        self._leave_of = lru_cache(4096)(self._start_of_leave)
        _open.add(self)

    @property
    def _waits(self) -> bool:
        """False while no claim waits, nor failed to: then nothing is kept about any."""
        return bool(self._bells.bells or self._unsent or self._troubles)

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()
        self._bells.ring_all()  # who waits here still finds it closed
        self._ears.close()

    def _start_afresh(self) -> None:
        """In a forked child: share nothing with the parent."""
        self._wire.reset()
        self._bells.start_afresh()
        self._channel = self._ears.reset(fresh_channel())
        self._enter_of.cache_clear()
        self._leave_of.cache_clear()

    def _start_of_enter(self, terms: Terms, who: str, mode: bytes) -> tuple[bytes, str]:
        """Return what stays the same when a thread enters with the same terms again and again, and the line."""
        line = line_of(terms.key)
        ttl = str(int(terms.ttl * 1000 + 0.999))
        thread = who.replace("\n", " ")
        about = f"{HOST}\n{pid()}\n{thread}\n{terms.label}"
        fixed = (ttl, str(terms.units), str(terms.capacity), self._channel, mode, about)
        return prefix(ENTER, keys_of_line(line), fixed, 1), line

    def _start_of_leave(self, terms: Terms) -> tuple[bytes, bytes, str]:
        """Return what stays the same when a claim leaves, without an heir and up to the heir let in, and the line."""
        line = line_of(terms.key)
        start = prefix(LEAVE, keys_of_line(line), (self._channel,), 2)
        return ended_by(start, ""), start, line

    def _mode(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> bytes:
        if again:
            return AGAIN
        if not wait:
            return TRY
        if wakeup is None:
            if not self._ears.live:
                return LOOK_FIRST  # who does not hear yet does not stand in line yet
            self._bells.expect(claim.id)
        return WAIT

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[Turn]:
        """As `Queue.enter`."""
        if wakeup is not None:
            patience, told = self._bells.hang(claim.id, wakeup)
            if told is not None:
                return Turn("using", told.fence, asked=False)
            if not self._ears.live:
                try:
                    yield Ask(self._ears, None)
                except StoreError as error:
                    return self._failed(claim, error, again, wait, waits=True)
            elif patience:
                return Turn("pending", 0, patience, asked=False)  # it stands in line since a moment ago
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, wakeup, wait, again))
            reply = yield Ask(self._wire, Message(ended_by(start, claim.id), line, claim.id))
        except StoreError as error:
            return self._failed(claim, error, again, wait, waits=wakeup is not None)
        return self._turn(claim, reply, wait, again)

    def _turn(self, claim: Claim, reply: Any, wait: bool, again: bool) -> Turn:
        """Translate the answer of the script."""
        self._answered = True
        if self._troubles:
            self._troubles.pop(claim.id, None)
        if type(reply) is list:
            reply, before, fence = reply
            self._bells.follow(before.decode(), claim.id, fence)
        if reply > 0:
            if again and self._bells.bells.get(claim.id) is not None:
                self._ears.suspect()  # it waited and was not told: perhaps nobody of this process is told any more
            self._bells.holds(claim.id)
            return Turn("using", reply)
        if reply <= PENDING_THERE:
            patience = min(LOOK_AGAIN, (PENDING_THERE - reply) / 1000) * random.uniform(1.0, 1.1)
            self._bells.wait_so_long(claim.id, patience)
            return Turn("pending", 0, patience)
        self._bells.withdraw(claim.id)
        if reply == GONE_THERE:
            self._leave_late(claim)
            return GONE
        if wait:
            return OCCUPIED
        self._leave_late(claim)
        return REFUSED

    def _leave_late(self, claim: Claim) -> bool:
        """See that no request that had no answer puts a claim into the line that is over."""
        if not self._wire.has_late:
            return False
        start, _, _ = self._leave_of(claim.terms)
        late: bool = self._wire.leave_late(claim.id, with_source(ended_by(start, claim.id)))  # nobody hears NOSCRIPT
        return late

    def _failed(self, claim: Claim, error: StoreError, again: bool, wait: bool, waits: bool) -> Turn:
        """Decide about a claim whose request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted.
        """
        if wait:
            return self._later(claim, error, again, waits)
        self._note(claim, error, again)
        raise error

    def _later(self, claim: Claim, error: StoreError, again: bool, waits: bool) -> Turn:
        """Decide about a claim that wants to wait and whose request failed: a server that is away may come back.

        Raises:
            StoreError: waiting does not help.
        """
        if isinstance(error, Moving):
            return _slot_moves()  # as if somebody else had the lock
        before = self._troubles.get(claim.id)
        seen = before is not None and before.unclear
        in_line = again or (waits and seen)  # whoever listens, and had no answer, may stand in line too
        self._note(claim, error, again)
        if not self._may_pass(error, in_line):
            raise error
        outage = Outage(error, self._recovery(claim, error))
        if not in_line and not seen and isinstance(error, UnknownOutcome):
            return UNCLEAR._replace(outage=outage)  # that may have been the connection only
        return Turn("busy" if in_line else "unclear", 0, random.uniform(0.2, 0.4), False, outage)

    def _may_pass(self, error: StoreError, in_line: bool) -> bool:
        if isinstance(error, Redirected):
            return bool(self._wire.follows)
        if isinstance(error, Passing):
            return in_line or error.code not in FOR_OPERATORS
        return isinstance(error, (UnknownOutcome, Unreachable)) and not isinstance(error, Denied)

    def _recovery(self, claim: Claim, error: StoreError) -> float:
        """Return how long a server that is away is waited for without a limit."""
        if self._answered or (isinstance(error, Passing) and error.code != "READONLY"):
            return max(RECOVERY, claim.terms.ttl)
        return FIRST_CONTACT

    def _note(self, claim: Claim, error: StoreError, again: bool) -> None:
        """Keep what is known of a claim whose request failed."""
        trouble = self._troubles.get(claim.id)
        if trouble is None:
            trouble = self._troubles[claim.id] = _Trouble()
        trouble.unclear = trouble.unclear or again or isinstance(error, UnknownOutcome)
        # Who lets in no more connections may still have those that are open.
        trouble.cut = isinstance(error, Unreachable) and not (trouble.unclear and isinstance(error, Denied))
        trouble.refused = isinstance(error, Refused)

    def _unclear(self, claim: Claim, error: StoreError, again: bool, wait: bool) -> Turn:
        """Decide about a claim whose first request failed.

        Raises:
            StoreError: waiting does not help, or is not wanted and it was not done.
        """
        if wait:
            return self._later(claim, error, again, waits=False)
        self._note(claim, error, again)
        if isinstance(error, UnknownOutcome):
            return UNCLEAR
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
        trouble = self._forget(claim)
        if trouble is not None and (trouble.cut or (trouble.refused and not trouble.unclear)):
            self._nothing_to_say(claim)
            if trouble.unclear:
                raise Unreachable("the server can't be reached; the claim will go when its lease ends, if not before")
            return False
        if self._unsent.pop(claim.id, None) is not None:
            return False
        if self._leave_late(claim) and trouble is not None:
            self._nothing_to_say(claim)
            raise NoAnswer("the server does not answer; the claim will go when its lease ends, if not before")
        start, _, line = self._leave_of(claim.terms)
        message = Message(ended_by(start, claim.id), line)
        try:
            reply = yield Ask(self._wire, message)
        except (NoAnswer, Unreachable):
            if trouble is not None:
                self._nothing_to_say(claim)
            raise
        except Broken:
            return (yield from self._leave_again(message, None, CUTS))
        return (yield from self._left_all(message, reply, None))

    def _left_all(self, message: Message, reply: Any, heir: str | None) -> Op[bool]:
        """As `_left`, and let the server promote the others whose turn has come, if they are many."""
        removed = self._left(reply, heir)
        while _code(reply) & MORE:
            reply = yield from self._ask(message)
            self._left(reply, None)
        return removed

    def _left_unheard(self, heir: str | None) -> None:
        """Nobody will read the answer to leave, which says who was promoted and what a promise is worth."""
        self._bells.ring_all()
        if heir is not None:
            self.doubt(heir)

    def _leave_again(self, message: Message, heir: str | None, times: int) -> Op[bool]:
        """Ask again, on other connections: an earlier request may have done it, so the answer is yes."""
        for more in reversed(range(times)):
            try:
                yield from self._left_all(message, (yield Ask(self._wire, message)), heir)
            except Broken:  # an heir may be at work meanwhile, and cut this one too
                if not more:
                    self._left_unheard(heir)
                    raise
            except BaseException:
                self._left_unheard(heir)
                raise
            else:
                break
        self._bells.ring_all()  # the reply that was lost said who was promoted
        return True

    def _ask(self, message: Message) -> Op[Any]:
        """Ask what may be asked twice."""
        try:
            return (yield Ask(self._wire, message))
        except (Broken, NoAnswer):  # the connection may have been forgotten on the way, the server be there
            return (yield Ask(self._wire, message))

    def _forget(self, claim: Claim) -> "_Trouble | None":
        """Forget a claim that leaves; return what was the matter with it."""
        self._bells.withdraw(claim.id)
        return self._troubles.pop(claim.id, None)

    def _released(self, claim: Claim) -> tuple[bytes, str, str | None]:
        """Let the heir of a grant's claim in.

        It held the lock: whatever was the matter with it while it waited, the server has it, and must be told.

        Returns:
            The command to leave, which names the heir if one was let in; the line; the heir's claim.
        """
        start, start_with_heir, line = self._leave_of(claim.terms)
        if not self._waits and not self._wire.has_late:
            return ended_by(start, claim.id), line, None
        self._troubles.pop(claim.id, None)
        self._unsent.pop(claim.id, None)
        self._leave_late(claim)
        heir = self._bells.pass_on(claim.id)
        if heir is None:
            return ended_by(start, claim.id), line, None
        id, fence = heir
        return ended_by(ended_by(start_with_heir, f"{id} {fence}"), claim.id), line, id

    def _left(self, reply: Any, heir: str | None) -> bool:
        """Take the answer to leave: tell those of this process who were promoted by it.

        Args:
            reply: the answer.
            heir: the claim that was let in before the server was told; None if none was.
        """
        told: list[Any] = [] if type(reply) is int else reply[1:]
        removed = _code(reply) & REMOVED != 0
        if _code(reply) & UNHEARD and not self._unheard:
            self._unheard = True
            warn("this user may not publish: who waits in other processes hears late, by its own look (+publish)")
        for place in range(0, len(told), 2):
            self._bells.tell(told[place].decode(), told[place + 1])
        if heir is not None and self._bells.is_void(removed):
            # The server no longer had the claim that let it in: what it promised to those behind may be void.
            self.doubt(heir)
            self._bells.ring_all()
        return removed

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        batches = self._wire.batches(claims, AT_ONCE)
        replies = yield from ask_all(self._wire, [self._renewal(batch) for batch in batches])
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
        patience = min(self._ears.patience, *(claim.terms.ttl / 3 for claim in batch))
        keys: list[str] = []
        words: list[str] = []
        for claim in batch:
            keys += keys_of_line(line_of(claim.terms.key))
            words += (claim.id, str(int(claim.terms.ttl * 1000 + 0.999)))
        return Message(call(RENEW, tuple(keys), *words), keys[0], patience=patience)

    def node_of(self, claim: Claim) -> object:
        """As `stores.base.nodes_of`."""
        try:
            node: object = self._wire.node_of(line_of(claim.terms.key))
        except StoreError:  # whoever asks is told
            return None
        return node

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        lines = [line_of(key)]
        if key.endswith(SEPARATOR):
            lines = yield from lines_in(self._wire, key[:-1])
        views: list[ClaimView] = []
        for line in lines:
            reply = yield from self._ask(Message(call(LOOK, keys_of_line(line)), line))
            views += views_of(line, reply)
        return views

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
    return refusal(ReplyError(word.decode(errors="replace")), "the server", line_of(claim.terms.key))


def _code(reply: Any) -> int:
    """Return the number in an answer to leave."""
    code: int = reply if type(reply) is int else reply[0]
    return code


def _slot_moves() -> Turn:
    """Return the answer to who waits for a lock whose slot is being moved."""
    return Turn("busy", 0, random.uniform(0.02, 0.06), asked=False)


def _nobody_asks(id: str) -> None:
    """Take a doubt where nobody renews."""


_open: Living[RedisQueue] = Living()


def _after_fork() -> None:
    for store in _open:
        store._start_afresh()


os.register_at_fork(after_in_child=_after_fork)
