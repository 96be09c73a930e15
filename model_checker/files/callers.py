"""The callers of the world: the steps that they take, and their wake-ups.

A step of the store runs under the guard, so it is one transition, independent of the others: a process that is
stopped inside a step only delays the others.  But it may be killed after each of its writes and wake-ups: then the
rest is not performed, the guard is released, and its liveness pipe is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from interlock.core.claims import USING
from interlock.core.line import Origin, QueuedClaim
from interlock.core.queue import BUSY, EnterResult, Granted
from model_checker.automaton import Automaton
from model_checker.caller import Cancelled
from model_checker.explore import Successor
from model_checker.files.client import LEASE_ENDS, STARTED, Begin, Enter, Hold, Leave, client
from model_checker.files.configurations import Configuration
from model_checker.files.judging import Judge, wrongly_answered
from model_checker.files.state import (
    BEGIN,
    COME,
    ENDED,
    FAULT,
    LIVE,
    LOOK,
    NAMES,
    SILENT,
    Caller,
    State,
    enters,
    fence_of,
    spent,
    with_caller,
    with_files,
    with_lease,
)
from model_checker.files.steps import (
    EARLIER,
    OVER,
    PACKAGE,
    Files,
    IsAlive,
    Production,
    Stepped,
    Steps,
    perform,
    told,
)
from model_checker.runtime import Before, Now, Sleep, Wait


class Outcome(NamedTuple):
    """The effect of a step on the files and the wake-ups; `done` is False for an interrupted one, without answer."""

    words: str
    files: Files
    rings: tuple[QueuedClaim, ...]
    answer: Any
    watch: frozenset[int]
    done: bool
    wrong: str | None


class Callers:
    """The callers of a configuration, each in its process.

    Args:
        configuration: the callers, and the possible faults.
        production: the decisions and the protocol, of the package or of a mutant.
    """

    def __init__(self, configuration: Configuration, production: Production = PACKAGE) -> None:
        self.configuration = configuration
        self.roles = configuration.roles
        self.processes = configuration.processes or tuple(range(len(self.roles)))
        self.steps = Steps(production, configuration.shrinks)
        self.automata = [Automaton(partial(client, production.acquire, role)) for role in self.roles]
        self._known: dict[Any, tuple[Outcome, ...]] = {}
        self._most_rows = len(self.roles) + configuration.lapses + configuration.evictions

    def request(self, number: int, caller: Caller) -> Any:
        """The present request of a caller."""
        return self.automata[number].requests[caller.local]

    def steps_of(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        """Yield the possible next steps of a live caller."""
        name = NAMES[number]
        request = self.request(number, caller)
        if isinstance(request, Begin):
            yield (COME, number), f"{name} comes", BEGIN, self.resumed(state, number, name)
        elif isinstance(request, Enter | Leave):
            yield from self._step(state, number, request)
            if self.configuration.busy and isinstance(request, Enter) and self._guarded(state, number):
                yield number, f"{name} finds the guard taken", FAULT, self.resumed(state, number, BUSY)
        elif isinstance(request, Wait):
            yield from self._wakings(state, number, caller)
        elif isinstance(request, Before):
            in_time = caller.lease == LIVE
            words = f"{name} sees that its lease {'lasts' if in_time else 'is over'}"
            after = self.resumed(state, number, in_time)
            if not in_time and isinstance(self.request(number, after[3 + number]), Hold):
                after = with_files(after, after[0], f"{name} is granted the lock after its own deadline")
            yield number, words, self._tag(after, number), after
        elif isinstance(request, Sleep):
            yield number, f"{name} sleeps", None, self.resumed(state, number, None)
        elif isinstance(request, Hold):
            yield number, f"{name} leaves the critical section", None, self.resumed(state, number, None)

    def _guarded(self, state: State, number: int) -> bool:
        """True if another caller requests a step too, so that it may have the guard."""
        return any(
            not other.dead and isinstance(self.request(each, other), Enter | Leave)
            for each, other in enumerate(state[3:])
            if each != number
        )

    # -- waking up --------------------------------------------------------------------------------------

    def _wakings(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        why = self.why_awake(state, number, caller)
        if why is None:
            return
        granted = None
        if caller.pipe is not None and caller.pipe not in (SILENT, LOOK):
            granted = Granted(caller.pipe, fence_of(caller.pipe))
        dead = frozenset(process for process in caller.watched if self.is_dead(state, process))
        woken = with_caller(state, number, caller._replace(pipe=SILENT, watched=caller.watched - dead))
        after = self.resumed(woken, number, granted)
        yield number, f"{NAMES[number]} wakes: {why}", self._tag(after, number), after

    def _tag(self, after: State, number: int) -> str | None:
        """The tag of a step of a caller that holds nothing before it."""
        return enters(NAMES[number]) if isinstance(self.request(number, after[3 + number]), Hold) else None

    def why_awake(self, state: State, number: int, caller: Caller) -> str | None:
        """Return as text what wakes a waiting caller; None if nothing does."""
        if caller.pipe == LOOK:
            return "told to look again"
        if caller.pipe != SILENT:
            return f"told that {caller.pipe} holds the lock"
        for process in caller.watched:
            if self.is_dead(state, process):
                return f"the process of {self.people(process)} has died"
        if caller.timed_out:
            return "its time is over"
        if self.configuration.heartbeats and self._lease_ended(state, caller):
            return "a lease has ended"
        return "to look by itself" if self.configuration.looks else None

    def _lease_ended(self, state: State, caller: Caller) -> bool:
        """True if the caller's own lease, or one before it, has expired: it does not wait longer than that."""
        files: Files = state[0]
        ahead = []
        for place in files.places:
            ahead.append(place.until)
            if place.id == caller.id:
                return caller.lease == ENDED or OVER in ahead
        return True

    def rung(self, state: State, rings: tuple[QueuedClaim, ...]) -> State:
        """Return the state after writes to some wake-up pipes; nobody reads a pipe of a process without a number."""
        if self.configuration.deaf:
            return state
        for place in rings:
            for number, caller in enumerate(state[3:]):
                if place.channel != str(number + 1) or caller.pipe is None or caller.dead:
                    continue
                if place.liveness_token == str(self.processes[number]):
                    said = place.id if place.state == USING else (caller.pipe if caller.pipe != SILENT else LOOK)
                    state = with_caller(state, number, caller._replace(pipe=said))
        return state

    # -- steps of the store -----------------------------------------------------------------------------

    def _step(self, state: State, number: int, request: Any) -> Iterator[Successor[State]]:
        name = NAMES[number]
        broken_off = state[2].kills or state[2].interrupts
        for outcome in self._outcomes(state, number, request):
            if not outcome.done and not broken_off:
                continue
            after = self.rung(with_files(state, outcome.files, outcome.wrong), outcome.rings)
            if outcome.done:
                yield from self._answered(after, number, outcome)
                continue
            if state[2].kills:
                dead = self.killed(after, self.processes[number])
                yield "kill", f"{name} is killed in its step: {outcome.words}", FAULT, spent(dead, "kills")
            if state[2].interrupts:
                thrown = self.resumed(after, number, Cancelled()) if isinstance(request, Enter) else after
                words = f"{name} is interrupted in its step: {outcome.words}"
                yield "interrupt", words, FAULT, spent(thrown, "interrupts")

    def _answered(self, state: State, number: int, outcome: Outcome) -> Iterator[Successor[State]]:
        caller: Caller = state[3 + number]
        answer, watched = outcome.answer, outcome.watch - {self.processes[number]}
        stands = getattr(answer, "state", None)
        if caller.pipe is not None and stands == "pending":
            state = with_caller(state, number, caller._replace(watched=watched))
        if stands == "gone" and not caller.evicted and not self.configuration.lapses:
            state = with_files(state, state[0], f"the claim {caller.id} is gone, though nobody took it away")
        after = self.resumed(state, number, answer)
        yield number, outcome.words, self._tag(after, number), after
        if state[2].kills:
            for process in sorted(watched):
                if not self.is_dead(state, process):
                    dead = self.killed(self._unwatchable(state, number, process), process)
                    words = f"{outcome.words}; before it watches {self.people(process)}, that process is killed"
                    yield "kill", words, FAULT, spent(self.resumed(dead, number, answer), "kills")

    def _unwatchable(self, state: State, number: int, process: int) -> State:
        """A process that is dead when its liveness pipe is opened can't be watched: the watcher wakes itself."""
        caller: Caller = state[3 + number]
        pipe = LOOK if caller.pipe == SILENT else caller.pipe
        return with_caller(state, number, caller._replace(watched=caller.watched - {process}, pipe=pipe))

    def _outcomes(self, state: State, number: int, request: Any) -> tuple[Outcome, ...]:
        dead = tuple(caller.dead for caller in state[3:])
        leaving = self._leaving(state)
        holding = self.holding(state)
        key = (state[0], dead, number, request, leaving, holding)
        known = self._known.get(key)
        if known is None:
            judge = Judge(self.is_alive(state), leaving, holding, self._most_rows)
            known = self._known[key] = tuple(self._performed(state[0], number, request, judge))
        return known

    def _leaving(self, state: State) -> frozenset[str]:
        if not self.configuration.interrupts:
            return frozenset()
        return frozenset(
            caller.id
            for number, caller in enumerate(state[3:])
            if not caller.dead and isinstance(self.request(number, caller), Leave)
        )

    def _performed(self, files: Files, number: int, request: Any, judge: Judge) -> Iterator[Outcome]:
        name, id = NAMES[number], request.claim.id
        if isinstance(request, Enter):
            channel = str(number + 1) if request.subscribed else ""
            origin = Origin("", channel, str(self.processes[number]))
            stepped = self.steps.enter(files, request.claim, request, origin, judge.is_alive)
            words = f"{name} asks: {_words(stepped.answer)}"
        else:
            stepped = self.steps.change(files, judge.is_alive, (id,), self.steps.line.leave, id)
            words = f"{name} gives up its claim" if stepped.answer else f"{name} leaves, its claim is gone already"
        yield from self.broken_off(files, words, id, stepped, judge)

    def broken_off(self, files: Files, words: str, id: str, stepped: Stepped, judge: Judge) -> Iterator[Outcome]:
        """Yield the whole step, and the step interrupted after each of its writes and wake-ups."""
        answer = stepped.answer
        if isinstance(answer, EnterResult):
            answer = answer._replace(poll_after=STARTED, fence=fence_of(id) if answer.state == "using" else 0)
        watch = frozenset(map(int, stepped.watch))
        for count in range(min(1, len(stepped.actions)), len(stepped.actions) + 1):
            actions = stepped.actions[:count]
            done = count == len(stepped.actions)
            after, wrong = judge.after(files, actions)
            if done:
                wrong = wrong or wrongly_answered(perform(files, actions), id, stepped)
            rings = tuple(filter(None, map(told, actions)))
            happened = words if done else f"after {count} of {len(stepped.actions)} writes and wake-ups ({words})"
            yield Outcome(happened, after, rings, answer, watch, done, wrong)

    # -- the caller's own requests, which nobody else can notice ------------------------------------------

    def resumed(self, state: State, number: int, answer: object) -> State:
        """Return the state after an answer to a caller, up to its next request that is visible to others."""
        automaton = self.automata[number]
        caller: Caller = state[3 + number]
        if isinstance(self.request(number, caller), Begin):
            caller = caller._replace(id=str(answer))
        local = automaton.step(caller.local, answer)
        while True:
            request = automaton.requests[local]
            if isinstance(request, Now):
                caller = caller._replace(lease=LIVE)
                if self.configuration.lapses:
                    state = with_files(state, with_lease(state[0], caller.id, EARLIER))
                answer = STARTED
            elif isinstance(request, Before) and request.moment != LEASE_ENDS:
                answer = not caller.timed_out
            elif isinstance(request, Before) and not self.configuration.lapses:
                answer = True
            else:
                return with_caller(state, number, _settled(caller._replace(local=local), request))
            local = automaton.step(local, answer)

    # -- processes --------------------------------------------------------------------------------------

    def killed(self, state: State, process: int) -> State:
        """Return the state after a process was killed with all its callers."""
        for number, its_process in enumerate(self.processes):
            if its_process == process:
                state = with_caller(state, number, Caller(self.automata[number].start, dead=True))
        return state

    def holding(self, state: State) -> frozenset[str]:
        """The claims that hold the lock, including notified waiters whose slots are not written yet."""
        return frozenset(
            caller.id
            for number, caller in enumerate(state[3:])
            if not caller.dead and isinstance(self.request(number, caller), Hold)
        )

    def is_dead(self, state: State, process: int) -> bool:
        """Return True if a process was killed."""
        dead: bool = state[3 + self.processes.index(process)].dead
        return dead

    def is_alive(self, state: State) -> IsAlive:
        """Return the function that stands for `Liveness.is_alive` in a state."""
        return lambda token: not self.is_dead(state, int(token))

    def people(self, process: int) -> str:
        """The names of the callers of a process."""
        return " and ".join(NAMES[number] for number, each in enumerate(self.processes) if each == process)


def _settled(caller: Caller, request: Any) -> Caller:
    """A caller with what its present request says of it, without the facts that do not matter there."""
    if isinstance(request, Begin):
        return Caller(caller.local)
    if isinstance(request, Enter):
        if request.claim.id != caller.id:
            caller = caller._replace(id=request.claim.id, evicted=False)
        if request.subscribed and caller.pipe is None:
            caller = caller._replace(pipe=SILENT)
    if isinstance(request, Hold | Leave):
        caller = caller._replace(pipe=None, watched=frozenset(), timed_out=False)
    return caller._replace(lease=LIVE, evicted=False) if isinstance(request, Leave) else caller


def _words(result: EnterResult) -> str:
    return {
        "using": "it holds the lock",
        "pending": "it stands in line",
        "occupied": "somebody waits or holds it, it needs a pipe",
        "refused": "refused",
        "gone": "its claim is gone",
    }[result.state]
