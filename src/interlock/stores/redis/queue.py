"""The queue on a Redis server: every step of the line is one script, hence one round trip."""

import os
import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from time import monotonic
from typing import Any

from interlock.claims import SEPARATOR, Claim, ClaimView, Terms
from interlock.effects import Ask, Op
from interlock.errors import StoreError, UnknownOutcome
from interlock.process import HOST, Living, pid
from interlock.protocols.queue import BUSY, GONE, OCCUPIED, REFUSED, Turn
from interlock.stores.redis.bells import Bells
from interlock.stores.redis.keys import keys_of_line, line_of
from interlock.stores.redis.message import Broken, Message, NoAnswer, Unreachable
from interlock.stores.redis.near import Near, fresh_channel
from interlock.stores.redis.problems import Passing
from interlock.stores.redis.resp import ended_by
from interlock.stores.redis.scripts import ENTER, EVICT, LEAVE, LOOK, RENEW, call, prefix
from interlock.stores.redis.views import lines_in, views_of

LOOK_AGAIN = 5.0  # seconds; a look at the latest after so long, in case that a message was missed
FORGET_AFTER = 60.0  # seconds
CUTS = 5  # so many connections may end in a row while a claim leaves, besides the first
AT_ONCE = 100  # claims renewed by one call
GONE_THERE, REFUSED_THERE, PENDING_THERE = -1, 0, -10
TRY, LOOK_FIRST, WAIT, AGAIN = b"t", b"o", b"w", b"a"


class _Trouble:
    """What is known of a claim whose last request failed.

    Attributes:
        since: when the first of them failed, monotonic.
        unclear: True if the server may have the claim.
        cut: True if the server could not be reached the last time.
    """

    __slots__ = ("cut", "since", "unclear")

    def __init__(self, since: float) -> None:
        self.since = since
        self.unclear = False
        self.cut = False


class RedisQueue:
    """The part of the store that both colours share; the wire and the ears give it its colour.

    Args:
        wire: what sends a message and returns its reply.
        ears: (channel, bells) -> what hears who was promoted, and subscribes when it is asked.
        release: closes the client that was made for the store; None if the client is the program's own.
    """

    def __init__(self, wire: Any, ears: Callable[[str, Bells, Near], Any], release: Callable[[], Any] | None) -> None:
        self._wire = wire
        self._bells = Bells()
        self._channel = fresh_channel()
        self._near = Near(self._bells)
        self._ears = ears(self._channel, self._bells, self._near)
        self._release = release
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
                    return self._later(claim, error, again, waits=True)
            elif patience:
                return Turn("pending", 0, patience, asked=False)  # it stands in line since a moment ago
        try:
            start, line = self._enter_of(claim.terms, claim.who, self._mode(claim, wakeup, wait, again))
            reply = yield Ask(self._wire, Message(ended_by(start, claim.id), line, claim.id))
        except StoreError as error:
            return self._later(claim, error, again, waits=wakeup is not None)
        return self._turn(claim, reply, wait)

    def _turn(self, claim: Claim, reply: Any, wait: bool) -> Turn:
        """Translate the answer of the script."""
        if self._troubles:
            self._troubles.pop(claim.id, None)
        if type(reply) is list:
            reply, before, fence, channel = reply
            before = before.decode()
            if self._bells.follow(before, claim.id, fence):
                self._near.follow(channel, before, claim.id, fence)
        if reply > 0:
            self._bells.holds(claim.id)
            return Turn("using", reply)
        if reply <= PENDING_THERE:
            patience = min(LOOK_AGAIN, (PENDING_THERE - reply) / 1000) * random.uniform(1.0, 1.1)
            self._bells.wait_so_long(claim.id, patience)
            return Turn("pending", 0, patience)
        self._bells.withdraw(claim.id)
        if reply == GONE_THERE:
            return GONE
        return OCCUPIED if wait else REFUSED

    def _later(self, claim: Claim, error: StoreError, again: bool, waits: bool) -> Turn:
        """Decide about a claim whose request failed: who stands in line already waits for the server to come back.

        Raises:
            StoreError: it does not stand in line, or its lease has ended meanwhile.
        """
        before = self._troubles.get(claim.id)
        # Whoever listens, and had no answer, may stand in line too.
        in_line = again or (waits and before is not None and before.unclear)
        trouble = self._note(claim, error, again)
        if not in_line or not isinstance(error, (UnknownOutcome, Unreachable, Passing)):
            raise error
        if monotonic() - trouble.since > claim.terms.ttl:
            raise error
        return Turn("busy", 0, random.uniform(0.2, 0.4), asked=False)

    def _note(self, claim: Claim, error: StoreError, again: bool) -> "_Trouble":
        """Keep what is known of a claim whose request failed."""
        trouble = self._troubles.get(claim.id)
        if trouble is None:
            trouble = self._troubles[claim.id] = _Trouble(monotonic())
        trouble.unclear = trouble.unclear or again or isinstance(error, UnknownOutcome)
        trouble.cut = isinstance(error, Unreachable)
        return trouble

    def _unclear(self, claim: Claim, error: StoreError, again: bool) -> Turn:
        """Note that a claim's first request failed; if it may have been done, whoever acquires asks again.

        Raises:
            StoreError: it was not done.
        """
        self._note(claim, error, again)
        if isinstance(error, UnknownOutcome):
            return BUSY
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
        if trouble is not None and trouble.cut:
            self._nothing_to_say(claim)
            if trouble.unclear:
                raise Unreachable("the server can't be reached; the claim will go when its lease ends, if not before")
            return False
        if self._unsent.pop(claim.id, None) is not None:
            return False
        start, _, line = self._leave_of(claim.terms)
        message = Message(ended_by(start, claim.id), line, claim.id, last=trouble is not None)
        try:
            reply = yield Ask(self._wire, message)
        except (NoAnswer, Unreachable):
            if trouble is not None:
                self._nothing_to_say(claim)
            raise
        except Broken:
            return (yield from self._leave_again(message))
        return self._left(reply)

    def _leave_again(self, message: Message) -> Op[bool]:
        """Ask again after a connection ended: an earlier request may have done it, so the answer is yes."""
        for more in reversed(range(CUTS)):
            try:
                self._left((yield Ask(self._wire, message)))
            except Broken:  # an heir may be at work meanwhile, and cut this one too
                if not more:
                    raise
            else:
                break
        self._bells.ring_all()  # the reply that was lost said who was promoted
        return True

    def _ask(self, message: Message) -> Op[Any]:
        """Ask what may be asked twice."""
        try:
            return (yield Ask(self._wire, message))
        except Broken:
            return (yield Ask(self._wire, message))

    def _forget(self, claim: Claim) -> "_Trouble | None":
        """Forget a claim that leaves; return what was the matter with it."""
        self._bells.withdraw(claim.id)
        return self._troubles.pop(claim.id, None)

    def _released(self, claim: Claim) -> tuple[bytes, str, bool]:
        """Let the heir of a grant's claim in.

        It held the lock: whatever was the matter with it while it waited, the server has it, and must be told.

        Returns:
            The beginning of the command to leave, which names the heir if one was let in; the line; was one?
        """
        start, start_with_heir, line = self._leave_of(claim.terms)
        if self._near.fd < 0 and not self._waits:
            return start, line, False
        self._troubles.pop(claim.id, None)
        self._unsent.pop(claim.id, None)
        self._near.hear_heirs()
        heir = self._bells.pass_on(claim.id)
        if heir is None:
            return start, line, False
        id, fence, address = heir
        word = f"{id} {fence}"
        if address and not self._near.let_in(word, address):
            return start, line, False
        return ended_by(start_with_heir, word), line, True

    def _left(self, reply: Any) -> bool:
        """Take the answer to leave: tell those of this process who were promoted by it."""
        if type(reply) is int:
            return reply == 1
        for place in range(1, len(reply), 2):
            self._bells.tell(reply[place].decode(), reply[place + 1])
        return bool(reply[0])

    def renew(self, claims: Sequence[Claim]) -> Op[list[bool]]:
        """As `Queue.renew`."""
        answers: dict[str, bool] = {}
        for batch in self._wire.batches(claims, AT_ONCE):
            # Whoever loses the lock because no answer comes must be told at its deadline, not later.
            patience = min(self._ears.patience, *(claim.terms.ttl / 3 for claim in batch))
            keys: list[str] = []
            words: list[str] = []
            for claim in batch:
                keys += keys_of_line(line_of(claim.terms.key))
                words += (claim.id, str(int(claim.terms.ttl * 1000 + 0.999)))
            reply = yield from self._ask(Message(call(RENEW, tuple(keys), *words), keys[0], patience=patience))
            answers |= {claim.id: bool(alive) for claim, alive in zip(batch, reply, strict=True)}
        return [answers[claim.id] for claim in claims]

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
        count: int = yield from self._ask(Message(call(EVICT, keys_of_line(line), id or ""), line))
        return count


_open: Living[RedisQueue] = Living()


def _after_fork() -> None:
    for store in _open:
        store._start_afresh()


os.register_at_fork(after_in_child=_after_fork)
