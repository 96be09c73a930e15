# Generated from _async/swap.py by tools/unasync.py; change that one.
"""A step store made of one that can compare and swap a text: it decides here, and swaps an unchanged line.

What was written last is remembered, so that a lone user's step is one round trip.  It decides by the server's clock
as this process knows it; the server refuses a swap if its clock differs by more than `SLACK`.  So an own lease is
`SLACK` longer than asked for, and that of others counts as over `SLACK` later.  Steps on one name that are asked for
while one is being done are done together by the next of those who ask, releases first: so few swaps meet there.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from interlock.core.claims import MICROS, PENDING, Check, Claim
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.line import (
    EMPTY,
    Clock,
    Decide,
    Line,
    Origin,
    Place,
    Step,
    complete,
    decode,
    encode,
    enter,
    kept,
    leave,
    look,
    renew,
)
from interlock.remote.neighbours import LONGEST_LOOK, neighbours, sooner
from interlock.runtime import _threads as rt
from interlock.runtime import clock

SLACK = 250_000  # microseconds that the server's clock may differ from what is known of it
FRESH = 0.75  # of a lease that must be left, else a waiter extends it when it looks
LOOK_AGAIN = 5.0  # seconds; neighbours notify of hand-overs; a waiter for other hosts looks sooner
TURN = 5.0  # seconds to wait for other steps of this process on the same name
INTERRUPTED = "who did the step for others too was interrupted: ask again"
LEAD, DONE = "lead", "done"  # messages to a step that waits for others
TRIES = 8  # swaps before the store counts as busy
REMEMBERED = 4096  # lines
AT_A_TIME = 200  # lines renewed by one statement


class SwapStore(Protocol):
    """A store of texts that can be compared and swapped; UnknownOutcome says that it may have been done."""

    def load(self, key: str) -> tuple[Any, str, int]:
        """Return version and text of a key (None and "" for none), and the store's time of day in microseconds."""

    def load_kept(self, key: str) -> tuple[str, str, int]:
        """Return text and value of a key as of one moment ("" for none), and the store's time of day."""

    def swap(self, key: str, version: Any, text: str, now: int, value: str | None = None) -> Any:
        """Write a text if the version is still that one, and the store's clock differs from `now` by SLACK at most.

        Args:
            key, version, text, now: as said.
            value: what is kept with the text from now on; None for what was.

        Returns:
            The new version; None if it was not written.
        """

    def swap_many(self, swaps: Sequence[tuple[str, Any, str]], now: int) -> Sequence[Any]:
        """Swap many texts at once; returns their new versions, or nothing if one of them was not written."""

    def permit(self, place: Place) -> None:
        """Raise StoreError if the lock may not be granted now."""

    def keys(self, prefix: str) -> list[str]:
        """List the keys that begin with a text and may have claims."""

    def doctor(self) -> list[Check]:
        """Find out whether this store keeps the promises that the protocol needs."""

    def close(self) -> None:
        """Give up what is open."""


class Known(NamedTuple):
    """What is known of a line.

    Attributes:
        version: of its text.
        line: what it says.
        quiet: True if no other process has written it between two steps of this one, as far as is known.
    """

    version: Any
    line: Line
    quiet: bool


class Asked:
    """A step that a caller asks for, with its arguments; `step` is its result."""

    __slots__ = ("args", "decide", "step", "waiter")

    def __init__(self, decide: Decide, args: tuple[Any, ...]) -> None:
        self.decide = decide
        self.args = args
        self.waiter: Any = None
        self.step: Step | StoreError | None = None

    @property
    def succeeded(self) -> bool:
        """True if it was done, and its answer is yes."""
        return isinstance(self.step, Step) and self.step.answer is True

    def do(self, line: Line, now: int, unknown: bool, slack: int, longest_look: int) -> Line:
        """Do it on a line as it is; return the line that is to be written.

        Args:
            line: as it is.
            now: of the server.
            unknown: True if it may have been done before.
            slack: microseconds that the server's clock may differ from what is known of it.
            longest_look: microseconds between two looks of a waiter.
        """
        args = [_longer(each, slack) for each in self.args]
        step = self.decide(line, Clock(now - slack, now), *args)
        if self.decide is look:
            step = step._replace(look_in=step.look_in + 2 * slack)
        step = sooner(step, step.line or line, Clock(now, now), longest_look)
        if self.decide is enter:
            step = _unwritten(step, line, now)
        if unknown and step.answer is False and self.decide is leave:
            step = step._replace(answer=True)  # the swap that had no answer has done it
        self.step = step
        return line if step.line is None else step.line

    def refuse(self, place: Place, waits: Place | None, error: StoreError) -> None:
        """Correct the result of a step: its place is not granted now.

        Args:
            place: that held the lock.
            waits: it, waiting on; None if it was new, and is not in the line.
            error: why.
        """
        if isinstance(self.step, Step):
            mine = isinstance(self.step.answer, Place) and self.step.answer.id == place.id
            promoted = tuple(each for each in self.step.promoted if each.id != place.id)
            self.step = self.step._replace(answer=waits if mine else self.step.answer, promoted=promoted)
            if mine and waits is None:
                self.step = error


class SwapSteps:
    """As `Steps`.

    Args:
        store: of texts.
    """

    def __init__(self, store: SwapStore) -> None:
        self._store = store
        self.look_again: float = getattr(store, "look_again", LOOK_AGAIN)
        self._longest_look = int(getattr(store, "longest_look", LONGEST_LOOK / MICROS) * MICROS)
        self._known: dict[str, Known] = {}
        self._asked: dict[str, deque[Asked]] = {}  # by key: the callers that wait while a step is being done
        self._leader: dict[str, Any] = {}  # by key: the caller that does it
        self._doubted: set[str] = set()  # keys of swaps that may still be done
        self._mutex = rt.Mutex()
        self._ahead: int | None = None  # microseconds of the server's clock, beside the one of this machine
        self.keys = store.keys
        self.doctor = store.doctor
        self.tell = neighbours.tell
        self.rest: Callable[[], object] = getattr(store, "rest", bool)
        neighbours.join()

    @property
    def origin(self) -> Origin:
        """This process, and where it listens."""
        return neighbours.origin

    def step(self, key: str, decide: Decide, *args: object) -> Step | None:
        """Do a step; as `Steps.step`.

        Raises:
            UnknownOutcome: it may have been done or not.
        """
        if decide is kept:
            text, value, now = self._store.load_kept(key)
            return Step(None, bool(text) and decode(text).done > now and value)
        mine, me, nested = Asked(decide, args), rt.caller(), False
        with self._mutex:
            others = self._asked.get(key)
            if others is None:
                self._asked[key] = deque()
            elif self._leader.get(key) is me:  # a signal handler in the middle of a step of its own thread
                nested = True
            else:
                mine.waiter = rt.Waiter()
                others.insert(0 if decide in (leave, complete) else len(others), mine)
        if mine.waiter is None or self._leads(key, mine):
            self._lead(key, mine, me, nested)
        if isinstance(mine.step, StoreError):
            raise mine.step
        return mine.step

    def _lead(self, key: str, mine: "Asked", me: object, nested: bool) -> None:
        """Do a step, with those that others wait for."""
        batch = [mine]
        with self._mutex:
            if not nested:
                batch += self._asked.get(key, ())
                self._asked[key], self._leader[key] = deque(), me
        try:
            self._do(key, batch)
        except BaseException as error:
            for each in batch:
                each.step = error if isinstance(error, StoreError) else UnknownOutcome(INTERRUPTED)
            raise
        finally:
            for each in batch[1:]:
                each.waiter.tell(DONE)
            if not nested:
                self._pass_on(key)

    def _leads(self, key: str, mine: "Asked") -> bool:
        """Wait while other callers work on a line, until one of them has done the step or it is the caller's turn.

        Raises:
            UnknownOutcome: the caller that does it does not end.
        """
        try:
            told = mine.waiter.wait(TURN)
        except BaseException:
            if not self._withdraw(key, mine) and mine.waiter.wait(0.0) is LEAD:
                self._pass_on(key)
            raise
        if told is None:
            if self._withdraw(key, mine):
                self._pass_on(key)  # perhaps the caller before was interrupted before it could say so
            elif (told := mine.waiter.wait(TURN)) is None:
                raise UnknownOutcome(f"other steps on this name took more than {2 * TURN:g} s: is the server there?")
        return told is LEAD

    def _withdraw(self, key: str, mine: "Asked") -> bool:
        with self._mutex:
            others = self._asked.get(key, ())
            if mine not in others:
                return False
            others.remove(mine)  # type: ignore[union-attr]
            return True

    def _pass_on(self, key: str) -> None:
        """Let the next caller work on a line, and do the steps of all callers that wait."""
        with self._mutex:
            others = self._asked.get(key)
            if others:
                others.popleft().waiter.tell(LEAD)
            else:
                self._asked.pop(key, None)
                self._leader.pop(key, None)

    def _do(self, key: str, batch: "Sequence[Asked]") -> None:
        """Do steps in one swap; those of others in this process too, so that few of them meet at the server."""
        known = self._remembered(key)
        unknown, looks = False, any(each.decide is look for each in batch)
        tries = TRIES if batch[0].decide is not renew else 1 if known is None else 2  # other lines' renewals wait
        for _ in range(tries):
            loaded = False
            if known is None or self._ahead is None or looks:
                known, loaded = self._load(key), True
            now, slack = self._now(), getattr(self._store, "slack", SLACK)
            line = known.line
            for each in batch:
                line = each.do(line, now, unknown, slack, self._longest_look)
            if line is known.line and key not in self._doubted:
                if loaded:
                    return
                known = None  # what is remembered proves nothing until it is swapped
                continue
            line = self._permitted(line, known.line, batch, now)
            value = next((each.args[-1] for each in batch if each.decide is complete and each.succeeded), None)
            try:  # written unchanged, a line makes a swap void that may still be on its way
                version = self._swap(key, known.version, encode(line), now, value)
            except UnknownOutcome:
                if unknown:
                    raise
                unknown, known = True, None
                continue
            if version is not None:
                self._remember(key, Known(version, line, known.quiet))
                return
            known = None
        for each in batch:
            each.step = None

    def _permitted(self, line: Line, before: Line, batch: "Sequence[Asked]", now: int) -> Line:
        """Return a line without the grants that the store does not permit: those claims go on waiting."""
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

    def _swap(self, key: str, version: Any, text: str, now: int, value: str | None) -> Any:
        self._doubted.add(key)
        new = self._store.swap(key, version, text, now, value)
        self._doubted.discard(key)
        return new

    def _load(self, key: str) -> Known:
        before = self._known.get(key)
        for again in (True, False):
            sent = clock.awake_or_not()
            try:
                version, text, now = self._store.load(key)
                break
            except UnknownOutcome:
                if not again:
                    raise
        self._ahead = now - int((sent + clock.awake_or_not()) / 2 * MICROS)
        if before is not None and before.version == version:
            return before._replace(quiet=True)
        try:
            line = decode(text) if text else EMPTY
        except ValueError as error:
            raise StoreError(f"the store has a line that is none of interlock's: {error}") from error
        return Known(version, line, before is None)

    def _now(self) -> int:
        return int(clock.awake_or_not() * MICROS) + (self._ahead or 0)

    def _remembered(self, key: str) -> Known | None:
        """Return what is known of a line, if it is probably still so."""
        known = self._known.get(key)
        if known is None:
            return None
        home = neighbours.home
        if known.line.places:
            return known if all(place.home == home for place in known.line.places) else None
        return known if known.quiet else None

    def _remember(self, key: str, known: Known) -> None:
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[key] = known

    def renew_many(self, by_key: Mapping[str, Sequence[str]]) -> dict[str, Step]:
        """Renew the claims of many lines that have not changed since; the others are not in the answer."""
        steps: dict[str, Step] = {}
        keys = [key for key in by_key if key not in self._asked and self._ahead is not None]
        for start in range(0, len(keys), AT_A_TIME):
            now, some, slack = self._now(), {}, getattr(self._store, "slack", SLACK)
            for key in keys[start : start + AT_A_TIME]:
                known = self._remembered(key)
                if known is not None:
                    step = renew(known.line, Clock(now - slack, now), by_key[key])
                    if step.line is not None and not step.promoted:
                        some[key] = known, step, step.line
            try:
                swaps = [(key, known.version, encode(line)) for key, (known, _, line) in some.items()]
                versions = self._store.swap_many(swaps, now) if swaps else ()
            except StoreError:
                break  # they are asked one by one, which says of each what is wrong
            for version, (key, (known, step, line)) in zip(versions, some.items(), strict=False):
                self._remember(key, Known(version, line, known.quiet))
                steps[key] = step
        return steps

    def close(self) -> None:
        """Give up what is open."""
        neighbours.leave()
        self._store.close()

    def abort(self) -> None:
        """Give up what is open, since the loop has ended."""
        neighbours.leave()
        getattr(self._store, "abort", bool)()


def _longer(argument: Any, slack: int) -> Any:
    """Return a claim with the lease that the store is told: so that it lasts as long as was asked for at least."""
    if not isinstance(argument, Claim):
        return argument
    spec = argument.spec
    return argument._replace(spec=spec._replace(ttl=spec.ttl + 2 * slack / MICROS))


def _unwritten(step: Step, before: Line, now: int) -> Step:
    """Return a step without its line if that only extends the lease of a waiter that is long enough."""
    waiter, line = step.answer, step.line
    if (
        not isinstance(waiter, Place)
        or waiter.state != PENDING
        or line is None
        or len(line.places) != len(before.places)
    ):
        return step
    old = next((place for place in before.places if place.id == waiter.id), None)
    if old is None or step.promoted or old.channel != waiter.channel or old.until - now < old.ttl * FRESH:
        return step
    return step._replace(line=None)
