"""The world around the production protocol: callers, their clocks, crashes, lost replies, calls broken off."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from interlock.claims import Terms
from interlock.effects import Before, FreshId, Now, Sleep, Subscribe, Wait
from interlock.errors import UnknownOutcome
from interlock.protocols import claiming, pending
from interlock.testing.checker.automaton import Automaton, Final
from interlock.testing.checker.pending import caller as call
from interlock.testing.checker.pending import register as ask
from interlock.testing.checker.pending.listing import read
from interlock.testing.checker.pending.naming import afresh
from interlock.testing.checker.pending.options import NAMES, TTL, Fence, Options
from interlock.testing.checker.pending.store import CURRENT, OLD, RENEWAL, Effect, Row, Store, incompatible, write

CRASH, LAPSE, CANCEL, TIMEOUT, LOST, RENEW, END = "crash", "lapse", "cancel", "timeout", "lost", "renew", "end"
ENVIRONMENT, CLOCK, NETWORK = "environment", "clock", "network"
NO_ANSWER = UnknownOutcome("no answer came")
BROKEN_OFF = call.Cancelled()
REQUESTS = (
    ask.Create, ask.List, ask.Update, ask.Promote, ask.PromoteIfFree, ask.Delete, ask.Reap, ask.Renew,
)  # fmt: skip


class Parts(NamedTuple):
    """The code that is checked; production's, unless a mutant takes its place."""

    acquire: Any = claiming.acquire
    attempt: Any = claiming.Attempt
    pending: Any = pending.Pending
    caller: Any = call.caller


class Process(NamedTuple):
    """One caller.

    Attributes:
        local: its local state in the automaton.
        passed: its own deadline has passed.
        renewal: of the moment at which the watchdog looked at the clock: 0 none, 1 ahead, 2 passed too.
        acquiring, holding: what it is in the middle of.
        dead: it crashed.
        progress: how far its request has come.
        spoiled: a request of it was lost, so something may be left behind.
    """

    local: int
    passed: bool = False
    renewal: int = 0
    acquiring: bool = False
    holding: bool = False
    dead: bool = False
    progress: Any = None
    spoiled: bool = False


class Book(NamedTuple):
    """What is still allowed to go wrong, the last fence granted, and what was found to be wrong."""

    lapses: int | None
    crashes: int
    lost: int
    cancels: int | None
    granted: int = 0
    entered: bool = False
    wrong: str | None = None


class Step(NamedTuple):
    """A step of one caller, as far as it does not depend on the others.

    `pays` names the field of the book that allows it; `flown` is a request that goes on without its sender;
    `fence` is granted by it; `wrong` is what it shows to be wrong.
    """

    actor: object
    label: str
    tag: object
    store: Store
    process: Process
    pays: str | None = None
    flown: Any = None
    fence: int | None = None
    wrong: str | None = None


Flying = tuple[tuple[int, Any], ...]
State = tuple[Any, ...]
"""The store, requests without a sender, the book, then each caller."""


class World:
    """Callers of one lock on one store.

    Args:
        options: what the world is like.
        parts: the code that is checked.
    """

    def __init__(self, options: Options, parts: Parts | None = None) -> None:
        self.options = options
        self.parts = parts or Parts()
        automata = {terms: Automaton(self._factory(terms)) for terms in set(options.terms)}
        self.automata = [automata[terms] for terms in options.terms]
        self.callers = len(options.terms)
        self._known: dict[tuple[Store, int, Process], list[Step]] = {}

    def _factory(self, terms: tuple[int, int]) -> Any:
        parts, options = self.parts, self.options
        asked = Terms("key", *terms, ttl=TTL)
        queue = parts.pending(ask.ModelRegister(options.folds))

        def factory() -> Any:
            return parts.caller(
                parts.acquire, parts.attempt, queue, asked,
                wait=options.wait, timeout=options.timeouts, attempts=options.attempts,
            )  # fmt: skip

        return factory

    def init(self) -> State:
        """Return the state in which nobody has done anything."""
        options = self.options
        state: State = (
            Store(), (), Book(options.lapses, options.crashes, options.lost, options.cancels),
            *(Process(automaton.start) for automaton in self.automata),
        )  # fmt: skip
        for number in range(self.callers):
            state = self._refreshed(state, number)
        return state

    def violation(self, state: State) -> str | None:
        """Return what is wrong with a state, or None."""
        store, _, book = state[:3]
        if book.wrong is not None:
            return str(book.wrong)
        options = self.options
        if options.exclusion:
            holders = [n for n, each in enumerate(state[3:]) if each.holding and not each.passed]
            if incompatible([options.terms[n] for n in holders]):
                return f"two holders: {' and '.join(NAMES[n] for n in holders)}"
        if options.one_using:
            using = [row for row in store.rows if row.state == "using" and not row.expired]
            if incompatible([(row.units, row.capacity) for row in using]):
                return "two unexpired using records"
        return None

    def finished(self, state: State, number: int) -> bool:
        """Tell whether a caller comes no more: it has ended or crashed."""
        process = state[3 + number]
        return process.dead or isinstance(self.automata[number].requests[process.local], Final)

    def all_finished(self, state: State) -> bool:
        """Tell whether no caller comes any more."""
        return all(self.finished(state, number) for number in range(self.callers))

    def successors(self, state: State) -> Iterator[tuple[object, str, object, State]]:
        """Return every step of every caller, of the clocks and of requests that are still under way."""
        store, flying, book = state[:3]
        for number in range(self.callers):
            for step in self._steps(store, number, state[3 + number]):
                if self._allowed(step, flying, book):
                    yield from self._taken(state, number, step)
        yield from self._expiries(state)
        for place, (number, request) in enumerate(flying):
            lease = self._moment(state[3 + number]) if request.id in NAMES else OLD
            sender = state[3 + number]._replace(spoiled=True)
            rest = (book, *state[3 : 3 + number], sender, *state[4 + number :])
            for effect in write(self.options, store, request, lease):
                words = f"a late request of {NAMES[number]} arrives: {effect.words}"
                yield NETWORK, words, None, (effect.store, flying[:place] + flying[place + 1 :], *rest)

    def _allowed(self, step: Step, flying: Flying, book: Book) -> bool:
        if step.flown is not None and len(flying) >= self.options.flying:
            return False
        return step.pays is None or getattr(book, step.pays) != 0

    def _taken(self, state: State, number: int, step: Step) -> Iterator[tuple[object, str, object, State]]:
        _, flying, book = state[:3]
        if step.pays is not None and (budget := getattr(book, step.pays)) is not None:
            book = book._replace(**{step.pays: budget - 1})
        if step.flown is not None:
            flying = tuple(sorted((*flying, (number, step.flown)), key=repr))
        if step.fence is not None:
            book = self._granted(book, step.fence)
        if step.wrong is not None:
            book = book._replace(wrong=step.wrong)
        after: State = (step.store, flying, book, *state[3 : 3 + number], step.process, *state[4 + number :])
        if not step.process.dead and isinstance(self.automata[number].requests[step.process.local], FreshId):
            after = self._refreshed(after, number)
        tag = step.tag
        if self.options.attempts is not None and tag is None and self.all_finished(after):
            tag = END
            if not self.options.wait and not after[2].entered:
                after = (*after[:2], after[2]._replace(wrong="all have tried, and nobody got the lock"), *after[3:])
        yield step.actor, step.label, tag, after

    def _granted(self, book: Book, fence: int) -> Book:
        if self.options.fence is Fence.NONE:
            return book if self.options.attempts is None else book._replace(entered=True)
        wrong = None if fence > book.granted else f"fence {fence} was granted after fence {book.granted}"
        return book._replace(granted=max(book.granted, fence), entered=True, wrong=wrong)

    def _refreshed(self, state: State, number: int) -> State:
        """Go on from a request for a fresh id: the new one gets the caller's name, the old one another."""
        processes: list[Process] = list(state[3:])
        store, flying, locals_, progress = afresh(
            number, self.automata, state[0], state[1],
            [process.local for process in processes], [process.progress for process in processes],
            self.options.same_id,
        )  # fmt: skip
        for place, local in enumerate(locals_):
            processes[place] = processes[place]._replace(local=local, progress=progress[place])
        settled = self._settled(store, number, processes[number], locals_[number])
        processes[number] = settled.process
        return (settled.store, flying, state[2], *processes)

    def _expiries(self, state: State) -> Iterator[tuple[object, str, object, State]]:
        store, flying, book = state[:3]
        if not self.options.leases:
            return
        for place, row in enumerate(store.rows):
            if row.expired:
                continue
            owner: Process = state[3 + row.owner]
            live = row.of_current_call and not self.finished(state, row.owner)
            early = row.of_current_call and not _over(row, owner)
            counts = early or (live and row.lease == OLD and not owner.passed)  # its deadline was not counted before
            if (early and not self.options.bad_clock) or (counts and book.lapses == 0):
                continue
            after = book._replace(lapses=book.lapses - 1) if counts and book.lapses is not None else book
            rows = (*store.rows[:place], row._replace(expired=True), *store.rows[place + 1 :])
            words = f"{row.id}'s record expires{' too early' if early else ''}"
            actor, tag = (ENVIRONMENT, LAPSE) if live else (CLOCK, None)
            yield actor, words, tag, (Store(rows, store.issued), flying, after, *state[3:])

    def _steps(self, store: Store, number: int, process: Process) -> list[Step]:
        known = self._known.get((store, number, process))
        if known is None:
            known = self._known[store, number, process] = list(self._all_steps(store, number, process))
        return known

    def _all_steps(self, store: Store, number: int, process: Process) -> Iterator[Step]:
        request = self.automata[number].requests[process.local]
        name = NAMES[number]
        if not isinstance(request, Final):
            yield from self._passing(store, name, process)
        if process.dead or isinstance(request, Final):
            return
        if isinstance(request, REQUESTS):
            yield from self._asked(store, number, process, request)
        else:
            yield from self._alone(store, number, process, request)
        if self.options.crashes:
            dead = _dead(process)
            yield Step(ENVIRONMENT, f"{name} crashes", CRASH, store, dead, "crashes")
            if isinstance(request, REQUESTS) and not isinstance(request, ask.List):
                words = f"{name} crashes, its request is under way"
                yield Step(ENVIRONMENT, words, CRASH, store, dead, "crashes", request)

    def _passing(self, store: Store, name: str, process: Process) -> Iterator[Step]:
        """The deadline of a claim passes on its owner's clock."""
        if not self.options.leases:
            return
        if not process.passed:
            after, words = process._replace(passed=True), f"{name}'s own deadline passes"
        elif process.renewal == 1:
            after, words = process._replace(renewal=2), f"{name}'s next deadline passes too"
        else:
            return
        if process.dead:
            yield Step(CLOCK, words, None, store, after)
        else:
            yield Step(ENVIRONMENT, words, LAPSE, store, after, "lapses")

    def _asked(self, store: Store, number: int, process: Process, request: Any) -> Iterator[Step]:
        """A request to the store: it is answered, or the answer is lost, or the call is broken off."""
        name = NAMES[number]
        for effect in self._effects(store, process, name, request):
            yield self._answered(store, number, process, effect)
            if effect.progress is None and self.options.lost:
                words = f"{name} {effect.words}, but the answer is lost"
                yield self._thrown(effect.store, number, process, NO_ANSWER, words, "lost")
        spoiled = process._replace(spoiled=True)
        if self.options.lost and process.progress is None:
            words = f"a request of {name} is lost: {request!r}"
            yield self._thrown(store, number, spoiled, NO_ANSWER, words, "lost")
            if not isinstance(request, ask.List):
                words = f"a request of {name} gets no answer and is still under way: {request!r}"
                yield self._thrown(store, number, spoiled, NO_ANSWER, words, "lost")._replace(flown=request)
        if process.acquiring and self.options.cancels != 0:
            yield self._thrown(store, number, process, BROKEN_OFF, f"the call of {name} is broken off", "cancels")
            if self.options.lost and not isinstance(request, ask.List):
                words = f"the call of {name} is broken off while its request is under way: {request!r}"
                yield self._thrown(store, number, spoiled, BROKEN_OFF, words, "cancels")._replace(flown=request)

    def _effects(self, store: Store, process: Process, name: str, request: Any) -> Iterator[Effect]:
        if isinstance(request, ask.List):
            return read(self.options, store, name, process.progress)
        lease = self._moment(process) if request.id in NAMES else OLD
        return write(self.options, store, request, lease, process.progress)

    def _answered(self, store: Store, number: int, process: Process, effect: Effect) -> Step:
        words = f"{NAMES[number]} {effect.words}"
        if effect.progress is not None:
            return Step(number, words, None, effect.store, process._replace(progress=effect.progress))
        local = self.automata[number].step(process.local, effect.answer)
        return self._settled(effect.store, number, process._replace(progress=None), local, words)

    def _thrown(
        self, store: Store, number: int, process: Process, error: BaseException, words: str, pays: str
    ) -> Step:
        local = self.automata[number].step(process.local, error)
        process = process._replace(progress=None, acquiring=process.acquiring and pays == "lost")
        if pays == "lost":
            process = process._replace(spoiled=True)
        step = self._settled(store, number, process, local, words)
        return step._replace(actor=ENVIRONMENT, tag=CANCEL if pays == "cancels" else LOST, pays=pays)

    def _alone(self, store: Store, number: int, process: Process, request: Any) -> Iterator[Step]:
        """A request that does not reach the store, and at which something may happen to the caller."""
        name = NAMES[number]

        def going_on(answer: object, words: str) -> Step:
            return self._settled(store, number, process, self.automata[number].step(process.local, answer), words)

        match request:
            case call.Work():
                yield going_on("leave", f"{name} leaves the critical section")
                if self.options.heartbeats and not process.passed:
                    step = going_on("renew", f"{name}'s watchdog is about to renew")
                    yield step._replace(tag=RENEW)
            case Before(call.TIME_IS_OVER):
                yield going_on(True, f"{name} still has time")
                over = going_on(False, f"the time of {name}'s call is over")
                yield over._replace(actor=ENVIRONMENT, tag=TIMEOUT)
            case Before():
                yield going_on(not process.passed, f"{name} looks at its own deadline: {_ahead(process)}")
            case Wait() | Sleep():
                yield going_on(None, f"{name} has waited")
                words = f"the call of {name} is broken off at a wait"
                yield self._thrown(store, number, process, BROKEN_OFF, words, "cancels")
            case _:
                raise TypeError(f"not a request of the protocol: {request!r}")

    def _settled(self, store: Store, number: int, process: Process, local: int, words: str = "") -> Step:
        """Go on to the next request at which something can happen; everything before it is one step."""
        automaton, name = self.automata[number], NAMES[number]
        tag: object = None
        fence = wrong = None
        while True:
            request = automaton.requests[local]
            answer: object = None
            match request:
                case Now():
                    answer = call.MOMENT
                    process = process._replace(passed=False)
                    store = self._leased(store, name, CURRENT, OLD)
                case Before(moment) if moment != call.TIME_IS_OVER and not self.options.stepwise:
                    answer = not process.passed
                    words += "" if answer else ", too late by its own clock"
                case Subscribe():
                    answer = "wake-up"
                case Wait() | Sleep() if self.options.cancels == 0 or not process.acquiring:
                    pass
                case call.Acquiring():
                    process = process._replace(acquiring=True)
                case call.Enter(granted):
                    process = process._replace(holding=True, acquiring=False)
                    tag, fence = ("enter", number), granted
                    words += ", and holds the lock"
                case call.Renewing():
                    process = process._replace(renewal=1)
                    store = self._leased(store, name, RENEWAL, OLD)
                case call.Answered(extended):
                    process = process._replace(passed=process.renewal == 2 if extended else process.passed, renewal=0)
                    store = self._leased(store, name, RENEWAL, CURRENT)
                case call.Leave():
                    process = process._replace(holding=False)
                case call.Finished():
                    wrong = wrong or self._left_behind(store, name, process)
                    process = process._replace(acquiring=False, spoiled=process.spoiled and _has_rows(store, name))
                case _:
                    # Nobody asks any more for the clock of one that comes no more.
                    passed = process.passed or isinstance(request, Final)
                    process = process._replace(local=local, passed=passed)
                    return Step(number, words, tag, store, process, fence=fence, wrong=wrong)
            local = automaton.step(local, answer)

    def _left_behind(self, store: Store, name: str, process: Process) -> str | None:
        if process.spoiled or not _has_rows(store, name):
            return None
        return f"{name} has finished and its record is still there"

    def _leased(self, store: Store, id: str, old: int, new: int) -> Store:
        """The moment from which the lease of a record is counted gets another name."""
        if not self.options.leases or all(row.id != id or row.lease != old for row in store.rows):
            return store
        rows = (row._replace(lease=new) if row.id == id and row.lease == old else row for row in store.rows)
        return Store(tuple(rows), store.issued)

    def _moment(self, process: Process) -> int:
        return RENEWAL if process.renewal and self.options.leases else CURRENT


def _over(row: Row, owner: Process) -> bool:
    """Whether the moment from which a lease is counted lies a ttl back, by the owner's clock."""
    if row.lease == RENEWAL:
        return owner.renewal == 2
    return row.lease == OLD or owner.passed


def _has_rows(store: Store, name: str) -> bool:
    return any(row.id[0].upper() == name for row in store.rows)


def _dead(process: Process) -> Process:
    """A caller that crashed; of one that holds, the deadline still counts."""
    return Process(0, passed=process.passed or not process.holding, holding=process.holding, dead=True)


def _ahead(process: Process) -> str:
    return "it has passed" if process.passed else "it is ahead"


def enters(actor: object, tag: object) -> bool:
    """Whether a step is somebody's entry into the critical section."""
    return isinstance(tag, tuple) and tag[0] == "enter"


def callers_of(world: World) -> Sequence[str]:
    """The names of the callers."""
    return NAMES[: world.callers]
