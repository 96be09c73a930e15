"""A step store on compare-and-swap: the client decides, then swaps an unchanged text.

The line that was written last is cached, so that a step without contention is one round trip.  The client decides by
its estimate of the server's clock; the server refuses a swap if its clock differs from the estimate by more than
`SLACK`.  So a lease is stored `2 * SLACK` longer than asked for, and a lease counts as expired `SLACK` late.  While
one caller performs a step on a name, further callers queue up; the next of them performs all their steps in one swap,
releases first.  So few swaps of this process conflict at the server.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from interlock.core.claims import MICROS, PENDING, Check, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import NoAnswer, TransientRefusal
from interlock.core.line import (
    EMPTY,
    Line,
    QueuedClaim,
    StepResult,
    StoreTime,
    Transition,
    complete,
    decode,
    delete_record,
    encode,
    enter,
    evict,
    leave,
    look,
    read_record,
    renew,
)
from interlock.runtime import _threads as rt
from interlock.runtime import clock
from interlock.runtime.host_notifier import LONGEST_POLL_MICROS, neighbours, sooner
from interlock.runtime.waiters import Notifier
from interlock.storekit._sync.step_queue import StepStore

V = TypeVar("V")
T = TypeVar("T")
"""The version of a text."""

SLACK = 250_000  # microseconds that the server's clock may differ from the estimate
FRESH = 0.75  # a waiter that polls extends its own lease if less than this part of it is left
POLL_INTERVAL = 5.0  # seconds; processes of this host notify; a waiter behind a holder of another host polls sooner
TURN = 5.0  # seconds to wait for other steps of this process on the same name
REPLY_LOST = "The reply to a step was lost; the step may have been performed before the retry."
INTERRUPTED = "The caller that performed this step for several others was interrupted. Retry."
LEAD_TURN, STEP_DONE = "lead", "done"  # messages to a step that waits for others
SWAP_ATTEMPTS = 8  # swaps before the store counts as busy
REMEMBERED = 4096  # lines
MOST_SEEN = 65_536  # lines of which a store remembers when it saw the claims of others
AT_A_TIME = 200  # lines renewed by one statement


class SwapStore(Protocol[V]):
    """A store of texts with compare and swap; UnknownOutcome means that a request may have been performed.

    Attributes:
        poll_after, longest_look: seconds between two polls of a waiter: at first, and at most.
        patience: seconds for which a step at a locked row is retried.
    """

    poll_after: float = POLL_INTERVAL
    longest_look: float = LONGEST_POLL_MICROS / MICROS
    patience: float = 0.0

    @property
    def slack(self) -> int:
        """Microseconds that the store's clock may differ from the estimate."""
        return SLACK

    @property
    def ahead(self) -> int | None:
        """Microseconds by which the store's clock is ahead of this machine's; None: the last load has shown it."""
        return None

    def close_idle(self) -> object:
        """Close idle connections, because no lock was held for a while."""
        return None

    @abstractmethod
    def load(self, key: str) -> tuple[V | None, str, int]:
        """Return version and text of a key (None, "" if it has none), and the store's time of day in microseconds."""

    @abstractmethod
    def load_kept(self, key: str) -> tuple[str, str, int]:
        """Return text and value of a key, read atomically ("" for none), and the store's time of day."""

    @abstractmethod
    def swap(self, key: str, version: V | None, text: str, now: int, value: str | None = None) -> V | None:
        """Write a text if the version is unchanged and the store's clock differs from `now` by at most SLACK.

        Args:
            key: the key to write.
            version: the version that `load` or the last `swap` returned; None if the key had no text.
            text: the new text.
            now: the caller's estimate of the store's time of day, in microseconds.
            value: the new value to keep with the text; None keeps the present one.

        Returns:
            The new version; None if nothing was written.
        """

    @abstractmethod
    def swap_many(self, swaps: Sequence[tuple[str, V, str]], now: int) -> Sequence[V]:
        """Swap many texts together; return their new versions, or nothing if one was not written."""

    @abstractmethod
    def permit(self, place: QueuedClaim) -> None:
        """Raise StoreError if the lock may not be granted now."""

    @abstractmethod
    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with `prefix` and may have claims."""

    @abstractmethod
    def doctor(self) -> list[Check]:
        """Check whether this store keeps its guarantees."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""


class CachedLine(NamedTuple, Generic[V]):
    """A cached line.

    Attributes:
        version: the version of its text.
        line: the decoded text.
        quiet: True if this process has seen no other process write the line between two steps of its own.
    """

    version: V | None
    line: Line
    quiet: bool


class StepBatch:
    """The caller that performs the steps of a line, and the waiting steps."""

    def __init__(self, leader: object) -> None:
        self.leader = leader
        self.asked: deque[PendingStep] = deque()


class PendingStep:
    """A step that a caller has requested, with its arguments; `step` is its result.

    Attributes:
        unknown: True if a swap of this step had no reply, so that the step may be in the line already.
    """

    def __init__(self, transition: Transition, args: tuple[object, ...], caller: object) -> None:
        self.transition = transition
        self.args = args
        self.caller = caller
        self.waiter: rt.Waiter[str] | None = None
        self.unknown = False
        self.step: StepResult | StoreError | None = None

    def wake(self, message: str) -> None:
        """Wake the caller if it waits."""
        if self.waiter is not None:
            self.waiter.wake(message)

    def do(self, line: Line, now: int, slack: int, longest_look: int) -> Line:
        """Perform the step on a line; return the line to write.

        Args:
            line: the present line.
            now: the estimate of the server's time, in microseconds.
            slack: microseconds that the server's clock may differ from the estimate.
            longest_look: the most microseconds between two polls of a waiter.
        """
        args = [_longer(each, slack) for each in self.args]
        step = self.transition(line, StoreTime(now - slack, now), *args)
        if self.transition is look:
            step = step._replace(look_in=step.look_in + 2 * slack)
        step = sooner(step, step.line or line, StoreTime(now, now), longest_look)
        if self.transition is enter:
            step = _unwritten(step, line, now)
        if self.unknown and step.answer is False and self.transition is leave:
            step = step._replace(answer=True)  # the swap whose reply was lost has removed the claim
        self.step = UnknownOutcome(REPLY_LOST) if self.unknown and self.transition in (evict, delete_record) else step
        return line if step.line is None else step.line

    def refuse(self, place: QueuedClaim, waits: QueuedClaim | None, error: StoreError) -> None:
        """Take a grant back from the result of this step, because the store does not permit it.

        Args:
            place: the place that the step granted.
            waits: the same place, pending again; None if it was new and is not in the line any more.
            error: the store's reason.
        """
        if isinstance(self.step, StepResult):
            mine = isinstance(self.step.answer, QueuedClaim) and self.step.answer.id == place.id
            promoted = tuple(each for each in self.step.promoted if each.id != place.id)
            self.step = self.step._replace(answer=waits if mine else self.step.answer, promoted=promoted)
            if mine and waits is None:
                self.step = error


class SwapSteps(StepStore, Generic[V]):
    """`StepStore` on a compare-and-swap store.

    Args:
        store: the store of texts.
    """

    notifier: Notifier = neighbours

    def __init__(self, store: SwapStore[V]) -> None:
        self._store = store
        self.poll_after = store.poll_after
        self._longest_look = int(store.longest_look * MICROS)
        self._known: dict[str, CachedLine[V]] = {}
        self._turns: dict[str, StepBatch] = {}  # by key, while a step is being performed
        self._unverified: set[str] = set()  # keys with a swap whose reply was lost: it may still arrive at the server
        self._mutex = rt.Mutex()
        self._ahead: int | None = None  # the server's clock minus the one of this machine, in microseconds
        neighbours.join()

    def step(self, key: str, transition: Transition, *args: object) -> StepResult | None:
        """Perform a step; see `StepStore.step`.

        Raises:
            UnknownOutcome: the reply was lost, so the step may have been performed or not.
        """
        if transition is read_record:
            text, value, now = self._store.load_kept(key)
            return StepResult(None, bool(text) and decode(text).record_expires > now and value)
        mine = PendingStep(transition, args, rt.caller())
        with self._mutex:
            turn = self._turns.setdefault(key, StepBatch(mine.caller))
            if turn.leader is not mine.caller:  # otherwise it is new, or interrupted by this signal handler
                mine.waiter = rt.Waiter()
                turn.asked.insert(0 if transition in (leave, complete) else len(turn.asked), mine)
        if mine.waiter is None or self._leads(key, mine, mine.waiter):
            self._lead(key, mine)
        if isinstance(mine.step, StoreError):
            raise mine.step
        return mine.step

    def _lead(self, key: str, mine: "PendingStep") -> None:
        """Perform a step, together with the steps of the callers that wait."""
        batch = [mine]
        with self._mutex:
            turn = self._turns.setdefault(key, StepBatch(mine.caller))
            turn.leader = mine.caller
            while turn.asked:  # one by one: a signal handler of this thread may come in between, and take the rest
                batch.append(turn.asked.popleft())
        try:
            self._do(key, batch)
        except StoreError as error:  # `step` raises it
            for each in batch:
                each.step = UnknownOutcome(str(error)) if each.unknown else error
        except BaseException:
            for each in batch:
                each.step = UnknownOutcome(INTERRUPTED)
            raise
        finally:
            for each in batch[1:]:
                each.wake(STEP_DONE)
            self._pass_on(key)

    def _leads(self, key: str, mine: "PendingStep", waiter: "rt.Waiter[str]") -> bool:
        """Wait until this step is performed, or is this caller's turn; True for the latter.

        Raises:
            UnknownOutcome: the caller that performs this step did not finish in time.
        """
        try:
            message = waiter.wait(TURN)
        except BaseException:
            if not self._withdraw(key, mine) and waiter.wait(0.0) is LEAD_TURN:
                self._pass_on(key)
            raise
        # If nobody has begun it, the caller before may have been interrupted before it passed the turn on.
        if message is None and not self._withdraw(key, mine):
            message = waiter.wait(TURN)
            if message is None:
                raise UnknownOutcome(
                    f"Other steps on this name took more than {2 * TURN:g} s. Check that the server is reachable."
                )
        return message is not STEP_DONE

    def _withdraw(self, key: str, mine: "PendingStep") -> bool:
        """Take back a waiting step; return False if another caller has begun it."""
        with self._mutex, suppress(KeyError, ValueError):
            self._turns[key].asked.remove(mine)
            return True
        return False

    def _pass_on(self, key: str) -> None:
        """Let the next waiting caller of a line perform all waiting steps."""
        with self._mutex:
            turn = self._turns.get(key)
            if turn is not None and turn.asked:
                first = turn.asked.popleft()
                turn.leader = first.caller
                first.wake(LEAD_TURN)
            else:
                self._turns.pop(key, None)

    def _do(self, key: str, batch: "Sequence[PendingStep]") -> None:
        """Perform the steps of a batch in one swap, so that callers here do not conflict."""
        known = self._remembered(key)
        first, looks = batch[0], any(each.transition is look for each in batch)
        retried = all(each.transition is enter for each in batch)  # `acquire` itself retries
        until = clock.now() + self._store.patience * (not retried)
        # The renewals of other lines wait for this one, so that it is not retried often.
        tries = SWAP_ATTEMPTS if first.transition is not renew else 1 if known is None else 2
        for _ in range(tries):
            loaded = False
            if known is None or self._ahead is None or looks:
                known, loaded = self._load(key), True
            slack, now = self._store.slack, self._now()  # in this order: a sample between them improves the estimate
            line = known.line
            for each in batch:
                line = each.do(line, now, slack, self._longest_look)
            if line is known.line and key not in self._unverified:
                if loaded:
                    return
                known = None  # a cached line may be outdated: only a load or a swap proves it
                continue
            line = self._permitted(line, known.line, batch, now)
            completed = (
                str(each.args[-1])
                for each in batch
                if each.transition is complete and isinstance(each.step, StepResult) and each.step.answer is True
            )
            self._unverified.add(key)
            try:  # even an unchanged line is written, so that its new version refuses a lost swap that arrives late
                version = self._store.swap(key, known.version, encode(line), now, next(completed, None))
            except UnknownOutcome as error:
                again = not first.unknown and not (retried and isinstance(error, NoAnswer))
                for each in batch:  # from now on, a refusal does not mean that nothing was done
                    each.unknown = True
                if not again:
                    raise
                known = None
                continue
            except TransientRefusal:  # other transactions keep the row locked
                if clock.now() >= until:
                    raise
                known = None
                continue
            self._unverified.discard(key)
            if version is not None:
                remember(self._known, key, CachedLine(version, line, known.quiet))
                return
            known = None
        for each in batch:
            each.step = UnknownOutcome(REPLY_LOST) if each.unknown else None

    def _permitted(self, line: Line, before: Line, batch: "Sequence[PendingStep]", now: int) -> Line:
        """Return a line without grants that the store forbids: waiters stay, new claims go."""
        waited = {place.id for place in before.places}
        for place in line.places:
            if place.held == now:
                try:
                    self._store.permit(place)
                except StoreError as error:
                    waits = place._replace(state=PENDING, held=0, slot=0) if place.id in waited else None
                    places = (waits if each is place else each for each in line.places)
                    line = line._replace(places=tuple(each for each in places if each is not None))
                    for asked in batch:
                        asked.refuse(place, waits, error)
        return line

    def _load(self, key: str) -> CachedLine[V]:
        before = self._known.get(key)
        sent = clock.awake_or_not()
        version, text, now = self._store.load(key)
        self._ahead = now - int((sent + clock.awake_or_not()) / 2 * MICROS)
        if before is not None and before.version == version:
            return before._replace(quiet=True)
        try:
            line = decode(text) if text else EMPTY
        except ValueError as error:
            raise StoreError(f"The store has a record that interlock did not write: {error}") from error
        return CachedLine(version, line, before is None)

    def _now(self) -> int:
        ahead = self._store.ahead
        return int(clock.awake_or_not() * MICROS) + ((self._ahead or 0) if ahead is None else ahead)

    def _remembered(self, key: str) -> CachedLine[V] | None:
        """Return a cached line if it is probably up to date; else None."""
        known = self._known.get(key)
        if known is None:
            return None
        if known.line.places:
            return known if all(place.process_name == neighbours.home for place in known.line.places) else None
        return known if known.quiet else None

    def renew_many(self, by_key: Mapping[str, Sequence[str]]) -> dict[str, StepResult]:
        """Renew the claims of many cached lines; a changed line is not in the answer."""
        steps: dict[str, StepResult] = {}
        keys = [key for key in by_key if key not in self._turns and self._ahead is not None]
        for start in range(0, len(keys), AT_A_TIME):
            slack, now = self._store.slack, self._now()
            some = {}
            for key in keys[start : start + AT_A_TIME]:
                known = self._remembered(key)
                if known is not None and known.version is not None:
                    step = renew(known.line, StoreTime(now - slack, now), by_key[key])
                    if step.line is not None and not step.promoted:
                        some[key] = known.version, known.quiet, step, step.line
            try:
                swaps = [(key, version, encode(line)) for key, (version, _, _, line) in some.items()]
                versions = self._store.swap_many(swaps, now) if swaps else ()
            except StoreError:
                break  # the queue then renews each line separately, and gets each error
            for version, (key, (_, quiet, step, line)) in zip(versions, some.items(), strict=False):
                remember(self._known, key, CachedLine(version, line, quiet))
                steps[key] = step
        return steps

    def close(self) -> None:
        """Close all connections."""
        neighbours.leave()
        self._store.close()

    abort = close

    def keys(self, prefix: str) -> list[str]:
        return self._store.keys(prefix)

    def doctor(self) -> list[Check]:
        return self._store.doctor()

    def close_idle(self) -> object:
        return self._store.close_idle()


def _longer(argument: Any, slack: int) -> Any:
    """Return a claim with a lease longer by twice the slack, so that it lasts long enough."""
    if not isinstance(argument, Claim):
        return argument
    spec = argument.spec
    return argument._replace(spec=spec._replace(ttl=spec.ttl + 2 * slack / MICROS))


def examined(whose: str, took: float, stale_is_written: bool, slack: int) -> list[Check]:
    """Return the findings of `doctor` about a server with conditional writes.

    Args:
        whose: the server, as the beginning of the sentence about its clock.
        took: seconds of a write.
        stale_is_written: True if the server accepted a write whose condition was not fulfilled.
        slack: microseconds that the server's clock may differ from the estimate.
    """
    seconds = slack / MICROS
    return [
        Check("server", "ok", f"A write takes {took * 1000:.1f} ms."),
        Check(
            "clock",
            "ok",
            f"{whose} clock is known to within {seconds:.2f} s. interlock waits {2 * seconds:.2f} s longer "
            "before it treats another process's lease as expired.",
        ),
        Check(
            "conditional writes",
            "fail",
            "The server accepted a stale write. Do not use this store. Run interlock doctor --race to see the fault.",
        )
        if stale_is_written
        else Check("conditional writes", "ok", "The server refused a stale write."),
    ]


def remember(known: dict[str, T], key: str, value: T, most: int | None = None) -> None:
    """Keep what is known of a name; forget the name that was added first if there are too many.

    Args:
        known: what is known, by name.
        key: the name.
        value: what is known of it.
        most: the number of names; None for `REMEMBERED`.
    """
    known[key] = value
    if len(known) > (REMEMBERED if most is None else most):
        with suppress(RuntimeError, StopIteration):  # another thread changes the names
            known.pop(next(iter(known)), None)


def with_stored_ends(before: str, text: str) -> str:
    """Return a line in which other processes' unrenewed claims keep their stored ends.

    If this process stored its own estimates of their ends, other processes would take them for renewals.

    Args:
        before: the line as it is stored.
        text: the line to write.
    """
    stored = {(place.id, place.renewal_count): place.until for place in decode(before).places} if before else {}
    line = decode(text)
    return encode(
        line._replace(
            places=tuple(
                place
                if place.process_name == neighbours.home
                else place._replace(until=stored.get((place.id, place.renewal_count), place.until))
                for place in line.places
            )
        )
    )


def _unwritten(step: StepResult, before: Line, now: int) -> StepResult:
    """Return a step without its line if that would only renew a `FRESH` waiter's lease."""
    waiter, line = step.answer, step.line
    if (
        not isinstance(waiter, QueuedClaim)
        or waiter.state != PENDING
        or line is None
        or len(line.places) != len(before.places)
    ):
        return step
    old = next((place for place in before.places if place.id == waiter.id), None)
    if old is None or step.promoted or old.channel != waiter.channel or old.until - now < old.ttl * FRESH:
        return step
    return step._replace(line=None)
