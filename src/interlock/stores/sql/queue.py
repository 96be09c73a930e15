"""The queue on a database that folds a step into one statement; a server of its colour performs the statements."""

from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

from interlock.core.claims import Claim, ClaimView
from interlock.core.effects import NOW, Ask, Op, Sleep
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Outage, Renewed
from interlock.core.oldstore import BaseStore
from interlock.runtime import log
from interlock.runtime.process import WeakRegistry, in_forked_child
from interlock.stores.sql.problems import AT_ONCE, Passing, Refused, Unreachable
from interlock.stores.sql.statements import MICROS, Statement, promotions_in, views_of
from interlock.stores.sql.waiters import Waiters

CHANNEL = "interlock_"
AT_A_TIME = 200  # claims renewed by one statement
RECOVERY = 60.0  # seconds to wait for a database that is away, where the caller has set no limit
FIRST_CONTACT = 2.0  # seconds; where nothing was ever done, the address is probably wrong
RETRY_LIMIT = 2.0  # seconds for which a step is tried again that others were in the way of
PAUSE = 0.005  # seconds between two tries
SWEEP_EVERY = 64  # releases
SWEEP_PAGES = 64
SWEEP_AGE = 60.0  # seconds
AWAY = 0.25  # seconds until a database that is away is asked again


class Listener(Protocol):
    """What hears that claims of this process were promoted by others, as an `effects.Server` of its colour.

    To ask it anything subscribes; it does not fail where nobody can be heard.
    """

    @property
    def live(self) -> bool:
        """True while promotions are heard."""

    def start(self, channel: str, waiters: Waiters) -> None:
        """Take note of the channel, and of whom to tell; nothing is opened yet."""

    def suspect(self) -> None:
        """Note that a claim was promoted and not told."""

    def close(self) -> None:
        """Give up the connection."""


class SqlQueue(BaseStore):
    """The part of a store on a database that both colours share.

    Args:
        server: performs a `Statement`, as an `effects.Server`; the answer is a list of rows.  It raises `Refused` if
            nothing was done, `Unreachable` if nothing was sent, `UnknownOutcome` if there was no answer.
        listener: hears promotions; it is asked to subscribe when somebody waits.
        texts: the statements, as `Texts` has them.
    """

    _hears_all = True  # False where some promotions are told to nobody: then waiters look often, too

    def __init__(self, server: Any, listener: Any, texts: Any) -> None:
        self._server = server
        self._listener = listener
        self._texts = texts
        self._waiters = Waiters()
        self._releases = count(1)
        self._answered = False
        self._indeterminate: set[str] = set()  # claims of which it is not known whether they stand in line
        self._start_listening()
        _open.add(self)

    def _start_listening(self) -> None:
        self._channel = self._texts.channel = CHANNEL + uuid4().hex
        self._listener.start(self._channel, self._waiters)

    def _start_afresh(self) -> None:
        """In a forked child: share nothing with the parent."""
        self._server.reset()
        self._listener.reset()
        self._waiters.start_afresh()
        self._texts.start_afresh()
        self._start_listening()

    # -- the steps of a Queue ----------------------------------------------------------------------------

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Op[EnterResult]:
        """As `Queue.enter`."""
        if wakeup is not None:
            self._waiters.add(claim.id, wakeup)
            if not self._listener.live:
                yield Ask(self._listener, None)
        mode = "again" if again else "wait" if wakeup is not None else "try"
        channel = self._channel if wakeup is not None and self._listener.live else ""
        hears = bool(channel) and self._hears_all
        try:
            rows = yield from self._ask(self._texts.enter(claim, mode, channel))
        except StoreError as error:
            return self._failed(claim, error, wait)
        self._indeterminate.discard(claim.id)
        state, fence, recheck_after, promotions, *more = rows[0]
        asked, before = more or (True, 0)
        if promotions:
            yield from self._tell(promotions)
        if state == "pending":
            lease = None if recheck_after is None else int(recheck_after) / MICROS
            return EnterResult("pending", 0, self._waiters.pause(claim.id, lease, hears, before), asked)
        self._waiters.remove(claim.id)
        if state == "using":
            if again and hears:
                self._listener.suspect()  # it waited and was not told: perhaps nobody of this process is any more
            return EnterResult("using", int(fence), asked=asked)
        if state == "gone":
            return GONE
        return OCCUPIED if wait else REFUSED

    def _failed(self, claim: Claim, error: StoreError, wait: bool) -> EnterResult:
        """Decide about a claim whose request failed: a server that is away may come back.

        Raises:
            StoreError: waiting does not help, or is not wanted.
        """
        if isinstance(error, UnknownOutcome):
            self._indeterminate.add(claim.id)
        passes = isinstance(error, (UnknownOutcome, Passing))
        if not wait or not passes:
            self._waiters.remove(claim.id)
            raise error
        wait_limit = max(RECOVERY, claim.spec.ttl) if self._answered else FIRST_CONTACT
        state = "indeterminate" if isinstance(error, UnknownOutcome) else "busy"
        return EnterResult(state, 0, AWAY, False, Outage(error, wait_limit))  # type: ignore[arg-type]

    def leave(self, claim: Claim) -> Op[bool]:
        """As `Queue.leave`."""
        self._waiters.remove(claim.id)
        statement = self._texts.leave(claim.spec.key, claim.id)
        lost = False
        indeterminate = claim.id in self._indeterminate
        self._indeterminate.discard(claim.id)
        try:
            rows = yield from self._ask(statement)
        except UnknownOutcome:
            if indeterminate:
                raise  # by a new connection, then: another one would not do better, and the caller's time is over
            lost = True  # the connection may have been forgotten on the way, and the database be there
            rows = yield from self._ask(statement)
        removed, promotions = rows[0]
        if promotions:
            yield from self._tell(promotions)
        if next(self._releases) % SWEEP_EVERY == 0:
            yield from self._sweep()
        return lost or int(removed) > 0  # the answer that was lost may have said so

    def renew(self, claims: Sequence[Claim]) -> Op[list[Renewed]]:
        """As `Queue.renew`."""
        answers: dict[str, Renewed] = {}
        for start in range(0, len(claims), AT_A_TIME):
            some = claims[start : start + AT_A_TIME]
            try:
                rows = yield from self._ask_again(self._texts.renew(some))
            except StoreError as error:
                answers |= dict.fromkeys((claim.id for claim in some), error)
                continue
            answers |= {id: bool(int(renewed)) or _held_up() for id, renewed in rows}
        return [answers.get(claim.id, False) for claim in claims]

    def look(self, key: str) -> Op[list[ClaimView]]:
        """As `Queue.look`."""
        return views_of((yield from self._ask_again(self._texts.look(key))))

    def namespaces(self) -> Op[list[str]]:
        """As `BaseStore.namespaces`."""
        rows = yield from self._ask_again(self._texts.namespaces())
        return [name for (name,) in rows]

    def evict(self, key: str, id: str | None) -> Op[int]:
        """As `Queue.evict`."""
        rows = yield from self._ask_again(self._texts.leave(key, id or "*", True))
        removed, promotions = rows[0]
        if promotions:
            yield from self._tell(promotions)
        return int(removed)

    # -- statements --------------------------------------------------------------------------------------

    def _ask(self, statement: Statement) -> Op[list[Any]]:
        """Perform a statement; again where others were in its way, which means that nothing was done."""
        until: float | None = None
        while True:
            try:
                rows: list[Any] = yield Ask(self._server, statement)
            except Refused as error:
                if error.code not in AT_ONCE:
                    raise
                now = yield NOW
                until = now + RETRY_LIMIT if until is None else until
                if now >= until:
                    raise
                yield Sleep(PAUSE)
            else:
                self._answered = True
                return rows

    def _ask_again(self, statement: Statement) -> Op[list[Any]]:
        """Perform a statement that may be performed twice."""
        try:
            return (yield from self._ask(statement))
        except (UnknownOutcome, Unreachable):
            return (yield from self._ask(statement))

    def _tell(self, promotions: str) -> Op[None]:
        """Tell those who were promoted; the step that did so has been answered."""
        messages: dict[str, list[str]] = {}
        for channel, id, fence in promotions_in(promotions):
            if channel == self._channel or not channel:
                self._waiters.notify(id, fence)
            else:
                messages.setdefault(channel, []).append(f"{id} {fence}")
        if messages:
            yield from self._tell_others(messages)

    def _tell_others(self, messages: dict[str, list[str]]) -> Op[None]:
        """Tell waiters of other processes, by their channels."""
        pairs = [(channel, each) for channel, some in messages.items() for each in some]
        channels, words = zip(*pairs, strict=True)
        try:
            yield from self._ask(self._texts.notify(channels, words))
        except StoreError as error:
            log.warn("could not tell who is next, who will find out by looking: %s", error)

    def _sweep(self) -> Op[None]:
        try:
            yield from self._ask(self._texts.sweep(SWEEP_PAGES, SWEEP_AGE))
        except StoreError as error:
            log.warn("could not sweep old names, later perhaps: %s", error)

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        self._server.close()
        self._waiters.wake_all()  # so that each waiter here finds it closed


def _held_up() -> StoreError:
    return StoreError("another step is at this claim, and did not come to its end: it was not renewed yet")


_open: WeakRegistry[SqlQueue] = WeakRegistry()


def _after_fork() -> None:
    for queue in _open:
        queue._start_afresh()


in_forked_child(_after_fork)
