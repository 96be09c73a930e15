"""The world around the production protocol: callers, their clocks, crashes, lost replies, cancelled calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interlock.core._async import acquire as claiming
from interlock.core._async import pending
from interlock.core.claims import LockSpec
from model_checker import caller as call
from model_checker import verdicts
from model_checker.automaton import Automaton, Final
from model_checker.explore import Actor, Successor, Tag
from model_checker.pending import register as ask
from model_checker.pending.line import GivesUp, step_queue
from model_checker.pending.naming import Flying, afresh
from model_checker.pending.options import NAMES, TTL, Fence, Options
from model_checker.pending.steps import (
    CLOCK,
    END,
    ENVIRONMENT,
    LAPSE,
    NETWORK,
    Caller,
    Process,
    Step,
    effects,
    moment,
)
from model_checker.pending.store import OLD, RENEWAL, Row, Store, incompatible
from model_checker.runtime import FreshId


class Parts(NamedTuple):
    """The code under check: production's, or a mutant's."""

    acquire: Any = claiming.acquire
    pending: Any = pending.AsyncPending
    caller: Any = call.caller


class Book(NamedTuple):
    """The faults that may still happen, the last fence granted, and the finding."""

    lapses: int | None
    crashes: int
    lost: int
    cancels: int | None
    granted: int = 0
    entered: bool = False
    wrong: str | None = None


State = tuple[Any, ...]
"""The store, requests in transit without a sender, the book, then each caller."""


class World(verdicts.World):
    """Callers of one lock on one store.

    Args:
        options: the options of the world.
        parts: the code under check.
    """

    def __init__(self, options: Options, parts: Parts | None = None) -> None:
        self.options = options
        self.parts = parts or Parts()
        automata = {spec: Automaton(self._factory(spec)) for spec in set(options.spec)}
        self.automata = [automata[spec] for spec in options.spec]
        self.callers = len(options.spec)
        self.ends = options.attempts is not None
        self._callers = [Caller(options, number, each) for number, each in enumerate(self.automata)]

    def _factory(self, spec: tuple[int, int]) -> Any:
        parts, options = self.parts, self.options
        asked = LockSpec("key", *spec, ttl=TTL)
        queue: Any
        if options.steps is None:
            queue = ask.RecordQueue(parts.pending(ask.ModelRecords(options.fence is Fence.DRAWN)))
        else:
            queue = step_queue()
            queue = GivesUp(queue) if options.gives_up else queue

        def factory() -> Any:
            return parts.caller(
                parts.acquire, queue, asked,
                wait=options.wait, timeout=options.timeouts, attempts=options.attempts,
            )  # fmt: skip

        return factory

    def init(self) -> State:
        """Return the state before the first step."""
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
            if incompatible([options.spec[n] for n in holders]):
                return f"two holders: {' and '.join(NAMES[n] for n in holders)}"
        if options.one_using:
            using = [row for row in store.rows if row.state == "using" and not row.expired]
            if incompatible([(row.units, row.capacity) for row in using]):
                return "two records: two unexpired using records"
        return None

    def good(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a caller's entry, or for the last step if each caller makes so many calls only."""
        return tag == END if self.ends else enters(tag)

    def limited(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a fault, and for the entry of a caller that makes only so many calls."""
        return tag is not None and tag != END and (self.ends or not enters(tag))

    def fair(self, actor: Actor) -> bool:
        """Return True except for faults."""
        return actor != ENVIRONMENT

    def over(self, state: State) -> bool:
        """Return True if all callers have finished or crashed."""
        return all(self.finished(state, number) for number in range(self.callers))

    def entries(self) -> dict[Any, Tag]:
        """Return the entry of each caller."""
        return {name: ("enter", number) for number, name in enumerate(NAMES[: self.callers])}

    def waits(self, state: State, name: Any) -> bool:
        """Return True if a caller has neither finished nor crashed."""
        return not self.finished(state, NAMES.index(name))

    def finished(self, state: State, number: int) -> bool:
        """Return True if a caller has finished or crashed."""
        process = state[3 + number]
        return process.dead or isinstance(self.automata[number].requests[process.local], Final)

    def successors(self, state: State) -> Iterator[Successor[State]]:
        """Return every step of every caller, of the clocks and of requests in transit."""
        store, flying, book = state[:3]
        for number in range(self.callers):
            for step in self._callers[number].steps(store, state[3 + number]):
                if self._allowed(step, flying, book):
                    yield from self._taken(state, number, step)
        yield from self._expiries(state)
        for place, (number, request) in enumerate(flying):
            lease = moment(self.options, state[3 + number]) if request.id in NAMES else OLD
            sender = state[3 + number]._replace(spoiled=True)
            rest = (book, *state[3 : 3 + number], sender, *state[4 + number :])
            for effect in effects(self.options, store, request, lease):
                words = f"a late request of {NAMES[number]} arrives: {effect.words}"
                yield NETWORK, words, None, (effect.store, flying[:place] + flying[place + 1 :], *rest)

    def _allowed(self, step: Step, flying: Flying, book: Book) -> bool:
        if step.flown is not None and flying:  # one at a time is in transit without its sender
            return False
        return step.pays is None or getattr(book, step.pays) != 0

    def _taken(self, state: State, number: int, step: Step) -> Iterator[Successor[State]]:
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
        if not step.process.dead:
            after = self._refreshed(after, number)
        tag = step.tag
        if self.options.attempts is not None and tag is None and self.over(after):
            tag = END
            if not self.options.wait and not after[2].entered:
                after = (
                    *after[:2],
                    after[2]._replace(wrong="nobody: all callers tried, and none got the lock"),
                    *after[3:],
                )
        yield step.actor, step.label, tag, after

    def _granted(self, book: Book, fence: int) -> Book:
        if self.options.fence is Fence.NONE:
            return book if self.options.attempts is None else book._replace(entered=True)
        wrong = None if fence > book.granted else f"fence: {fence} was granted after {book.granted}"
        return book._replace(granted=max(book.granted, fence), entered=True, wrong=wrong)

    def _refreshed(self, state: State, number: int) -> State:
        """Answer requests for fresh ids: the used id gets the caller's name, the old id another name."""
        while isinstance(self.automata[number].requests[state[3 + number].local], FreshId):
            processes: list[Process] = list(state[3:])
            store, flying, locals_ = afresh(
                number, self.automata, state[0], state[1], [process.local for process in processes],
                self.options.same_id,
            )  # fmt: skip
            for place, local in enumerate(locals_):
                processes[place] = processes[place]._replace(local=local)
            settled = self._callers[number].settled(store, processes[number], locals_[number])
            processes[number] = settled.process
            state = (settled.store, flying, state[2], *processes)
        return state

    def _expiries(self, state: State) -> Iterator[Successor[State]]:
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
            yield actor, words, tag, (store._replace(rows=rows), flying, after, *state[3:])


def _over(row: Row, owner: Process) -> bool:
    """Return True if, by the owner's clock, a lease has expired: it counts from a moment at least a ttl ago."""
    if row.lease == RENEWAL:
        return owner.renewal == 2
    return row.lease == OLD or owner.passed


def enters(tag: object) -> bool:
    """Return True for a caller's entry into the critical section."""
    return isinstance(tag, tuple) and tag[0] == "enter"
