"""The world of the file store: callers of one name in processes that may be killed, stopped and cancelled.

A step of the store runs under the guard, so it is one transition, whatever the others do meanwhile: a process that
is stopped inside a step delays the others, and what it decided holds for the moment at which it took the guard.
But it may be killed after each of its writes and bells: then the rest is not done, the guard is free, and its
beacon is out.

A lease is counted by its owner from before the request, by the store from its arrival.  So the world may declare
it over in the store when it is over for its owner, or when its owner has sent a later request since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interlock.claims import fits
from interlock.effects import Before, FreshId, Now, Sleep, Subscribe, Wait
from interlock.protocols.queue import BUSY, Told, Turn
from interlock.stores.files.record import Slot
from interlock.testing.checker.automaton import Automaton
from interlock.testing.checker.explore import Successor
from interlock.testing.checker.files.client import LEASE_ENDS, STARTED, Begin, Cancelled, Enter, Hold, Leave, client
from interlock.testing.checker.files.configurations import Configuration
from interlock.testing.checker.files.production import PRODUCTION, Production
from interlock.testing.checker.files.steps import (
    EARLIER,
    LATER,
    OVER,
    Files,
    Ring,
    Stepped,
    Steps,
    canonical,
    granted,
    perform,
)

NAMES = "ABCDEFGH"
ENTER, BEGIN, FAULT = "enter", "begin", "fault"
SILENT, LOOK = "", "\n"  # what a bell says when it was not rung, and when it told to look; else an id
LIVE, ENDED, SENT, SENT_ENDED, SENT_BOTH = "live", "over", "sent", "sent, over", "sent, both over"
HOLDING = frozenset({LIVE, SENT})


class Caller(NamedTuple):
    """One caller.

    `local`: where it stands in its protocol; `id`: of its claim; `bell`: what its bell says, None if it has none;
    `watched`: the processes whose death wakes it; `lease`: its own deadline, and, while it renews, the one that it
    will have.
    """

    local: int
    id: str = ""
    bell: str | None = None
    watched: frozenset[int] = frozenset()
    lease: str = LIVE
    timed_out: bool = False
    evicted: bool = False
    dead: bool = False


class Budget(NamedTuple):
    """What may still happen."""

    kills: int
    lapses: int
    evictions: int
    cancels: int
    interrupts: int


class Outcome(NamedTuple):
    """What a step did to the files and the bells; `done` False: it was broken off, and answers nothing."""

    words: str
    files: Files
    rings: tuple[Ring, ...]
    answer: Any
    watch: frozenset[int]
    done: bool
    wrong: str | None


State = tuple[Any, ...]
"""The files, what is wrong with the last step, the budget, then the callers."""


class World:
    """A configuration of callers on one name.

    Args:
        configuration: who, and what may happen.
        production: the decisions and the protocol; a mutant's, or those that the package uses.
    """

    def __init__(self, configuration: Configuration, production: Production = PRODUCTION) -> None:
        self.configuration = configuration
        self.roles = configuration.roles
        self.processes = configuration.processes or tuple(range(len(self.roles)))
        self.steps = Steps(production.plan, configuration.shrinks)
        self.automata = [Automaton(lambda role=role: client(production.acquire, role)) for role in self.roles]
        self._known: dict[Any, tuple[Outcome, ...]] = {}
        self._most_rows = len(self.roles) + configuration.lapses + configuration.evictions

    def init(self) -> State:
        """Return the state in which nobody has come yet."""
        each = self.configuration
        budget = Budget(each.kills, each.lapses, each.evictions, each.cancels, each.interrupts)
        return (Files(), None, budget, *[Caller(automaton.start) for automaton in self.automata])

    # -- what may happen --------------------------------------------------------------------------------

    def successors(self, state: State) -> Iterator[Successor[State]]:
        """Return every step of every caller, and all that may befall them."""
        if state[1] is not None:
            return
        callers = state[3:]
        for number, caller in enumerate(callers):
            if not caller.dead:
                yield from self._steps_of(state, number, caller, self.request(number, caller))
        budget: Budget = state[2]
        if budget.kills:
            yield from self._kills(state)
        if budget.lapses:
            yield from self._lapses(state)
        if budget.evictions:
            yield from self._evictions(state)
        if self.configuration.tidies:
            yield from self._tidying(state)

    def request(self, number: int, caller: Caller) -> Any:
        """What a caller asks for now."""
        return self.automata[number].requests[caller.local]

    def _steps_of(self, state: State, number: int, caller: Caller, request: Any) -> Iterator[Successor[State]]:
        name = NAMES[number]
        if isinstance(request, Begin):
            came = self._resumed(state, number, self._fresh(state, name))
            yield ("come", number), f"{name} comes", BEGIN, came
            return
        if isinstance(request, Enter | Leave):
            yield from self._step(state, number, caller, request)
            if self.configuration.busy and isinstance(request, Enter) and self._guarded(state, number):
                yield number, f"{name} finds the guard taken", None, self._resumed(state, number, BUSY)
        elif isinstance(request, Wait):
            yield from self._wakings(state, number, caller)
        elif isinstance(request, Before):
            in_time = caller.lease == LIVE
            after = self._resumed(state, number, in_time)
            yield number, f"{name} sees that its lease {'lasts' if in_time else 'is over'}", ENTER, after
        elif isinstance(request, Sleep):
            yield number, f"{name} sleeps", None, self._resumed(state, number, None)
        elif isinstance(request, Hold):
            yield number, f"{name} leaves the critical section", None, self._resumed(state, number, None)
            if self.configuration.renews:
                yield from self._renewals(state, number, caller)
        if caller.timed_out is False and self.roles[number].times_out and not isinstance(request, Hold | Leave):
            after = _with(state, number, caller._replace(timed_out=True))
            yield ("clock", number), f"{name}'s time-out passes", FAULT, after
        if state[2].cancels and not isinstance(request, Hold | Leave):
            cancelled = self._resumed(state, number, Cancelled())
            yield "cancel", f"{name} is cancelled", FAULT, _spent(cancelled, "cancels")

    def _guarded(self, state: State, number: int) -> bool:
        """Somebody else asks for a step too, so the guard may be taken."""
        return any(
            not other.dead and isinstance(self.request(each, other), Enter | Leave)
            for each, other in enumerate(state[3:])
            if each != number
        )

    def _wakings(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        why = self._why_awake(state, caller)
        if why is None:
            return
        told = None
        if caller.bell is not None and caller.bell not in (SILENT, LOOK):
            told = Told(caller.bell, _fence_of(caller.bell))
        dead = frozenset(process for process in caller.watched if self._is_dead(state, process))
        woken = _with(state, number, caller._replace(bell=SILENT, watched=caller.watched - dead))
        yield number, f"{NAMES[number]} wakes: {why}", None, self._resumed(woken, number, told)

    def _why_awake(self, state: State, caller: Caller) -> str | None:
        if caller.bell == LOOK:
            return "told to look again"
        if caller.bell != SILENT:
            return f"told that {caller.bell} holds the lock"
        for process in caller.watched:
            if self._is_dead(state, process):
                return f"the process of {self._people(process)} has died"
        if caller.timed_out:
            return "its time is over"
        return "to look by itself" if self.configuration.looks else None

    # -- steps of the store -----------------------------------------------------------------------------

    def _step(self, state: State, number: int, caller: Caller, request: Any) -> Iterator[Successor[State]]:
        name = NAMES[number]
        broken_off = state[2].kills or state[2].interrupts
        for outcome in self._outcomes(state, number, request):
            if not outcome.done and not broken_off:
                continue
            after = self._rung(_files(state, outcome.files, outcome.wrong), outcome.rings)
            if outcome.done:
                yield from self._answered(after, number, outcome)
                continue
            if state[2].kills:
                dead = self._killed(after, self.processes[number])
                yield "kill", f"{name} is killed in its step: {outcome.words}", FAULT, _spent(dead, "kills")
            if state[2].interrupts:
                thrown = self._resumed(after, number, Cancelled()) if isinstance(request, Enter) else after
                label = f"{name} is interrupted in its step: {outcome.words}"
                yield "interrupt", label, FAULT, _spent(thrown, "interrupts")

    def _answered(self, state: State, number: int, outcome: Outcome) -> Iterator[Successor[State]]:
        caller: Caller = state[3 + number]
        own = self.processes[number]
        watched = outcome.watch - {own}
        answer = outcome.answer
        using = getattr(answer, "state", None) == "using"
        tag = ENTER if using and not self.configuration.lapses else None
        if caller.bell is not None and getattr(answer, "state", None) == "pending":
            state = _with(state, number, caller._replace(watched=watched))
        yield number, outcome.words, tag, self._resumed(state, number, answer)
        if state[2].kills:
            for process in sorted(watched):
                if not self._is_dead(state, process):
                    dead = self._killed(self._lost(state, number, process), process)
                    label = f"{outcome.words}; before it watches {self._people(process)}, that one is killed"
                    yield "kill", label, FAULT, _spent(self._resumed(dead, number, answer), "kills")

    def _lost(self, state: State, number: int, process: int) -> State:
        """Whoever is dead when its beacon is opened can't be watched: `Wakeup.watch` rings the own bell."""
        caller: Caller = state[3 + number]
        bell = caller.bell if caller.bell not in (None, SILENT) else LOOK
        return _with(state, number, caller._replace(watched=caller.watched - {process}, bell=bell))

    def _outcomes(self, state: State, number: int, request: Any) -> tuple[Outcome, ...]:
        files: Files = state[0]
        alive = tuple(caller.dead for caller in state[3:])
        leaving = self._leaving(state)
        bell = state[3 + number].bell is not None
        key = (files, alive, number, request, bell, leaving)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = tuple(self._performed(state, number, request, leaving))
        return known

    def _leaving(self, state: State) -> frozenset[str]:
        """The claims of callers that were interrupted and do not wait any more."""
        if not self.configuration.interrupts:
            return frozenset()
        return frozenset(
            caller.id
            for number, caller in enumerate(state[3:])
            if not caller.dead and isinstance(self.request(number, caller), Leave)
        )

    def _performed(self, state: State, number: int, request: Any, leaving: frozenset[str]) -> Iterator[Outcome]:
        files: Files = state[0]
        name = NAMES[number]

        def is_alive(token: str) -> bool:
            return not self._is_dead(state, int(token))

        if isinstance(request, Enter):
            me = self._slot(number, request)
            stepped = self.steps.enter(files, me, request, is_alive)
            words = f"{name} asks: {_told(stepped.answer)}"
        else:
            stepped = self.steps.leave(files, request.claim.id, is_alive)
            words = f"{name} gives up its claim" if stepped.answer else f"{name}'s claim is gone when it leaves"
        yield from self._broken_off(state, words, request.claim.id, stepped, leaving)

    def _broken_off(
        self, state: State, words: str, id: str, stepped: Stepped, leaving: frozenset[str] = frozenset()
    ) -> Iterator[Outcome]:
        """The step, and what it is when it is broken off after each of its writes and bells."""
        files: Files = state[0]
        answer = stepped.answer
        if isinstance(answer, Turn):
            fence = _fence_of(id) if answer.state == "using" else 0
            answer = answer._replace(look_again=STARTED, fence=fence)
        for count in range(1, len(stepped.actions) + 1):
            actions = stepped.actions[:count]
            done = count == len(stepped.actions)
            after, wrong = self._judged(state, files, actions, leaving)
            if done and getattr(stepped.answer, "state", None) == "using" and wrong is None:
                if stepped.answer.fence not in [slot.number for slot in perform(files, actions).holders() if slot.id == id]:
                    wrong = f"{id} is answered with a fence that is not its own"
            rings = tuple(action for action in actions if isinstance(action, Ring))
            told = words if done else f"after {count} of {len(stepped.actions)} writes and bells ({words})"
            yield Outcome(told, after, rings, answer, frozenset(map(int, stepped.watch)), done, wrong)
        if not stepped.actions:
            yield Outcome(words, files, (), answer, frozenset(map(int, stepped.watch)), True, None)

    def _slot(self, number: int, request: Enter) -> Slot:
        role, id = self.roles[number], request.claim.id
        token, bell = str(self.processes[number]), int(request.subscribed)
        return Slot(-1, "pending", 0, LATER, id, role.units, role.capacity, token, bell, b"")

    # -- what must hold of a step -----------------------------------------------------------------------

    def _judged(
        self, state: State, files: Files, actions: tuple[Any, ...], leaving: frozenset[str]
    ) -> tuple[Files, str | None]:
        """The files after some writes, and what is wrong with them."""
        after = perform(files, actions)
        wrong, peak = None, files.peak
        fences = {slot.id: slot.number for slot in [*files.holders(), *after.holders()]}
        for slot in granted(files, actions):
            if slot.number <= peak:
                wrong = f"the fence of {slot.id} is not higher than all before"
            peak = max(peak, slot.number)
            passed = self._overtaken(state, files, after, slot, leaving)
            wrong = wrong or passed
        for action in actions:
            told = action.told if isinstance(action, Ring) else None
            if told is not None and fences.get(told.id) != told.fence:
                wrong = wrong or f"{told.id} is told a fence that is not its own"
        live = [slot for slot in after.holders() if slot.until > OVER and not self._is_dead(state, int(slot.alive))]
        if not fits(0, live[0].capacity if live else 1, [(slot.units, slot.capacity) for slot in live]):
            wrong = wrong or f"using/ shows {' and '.join(sorted(slot.id for slot in live))} at once"
        if len(after.using) > self._most_rows or len(after.pending) > self._most_rows:
            wrong = wrong or "the files have more rows than there were claims at a time"
        return canonical(after._replace(peak=peak)), wrong

    def _overtaken(
        self, state: State, before: Files, after: Files, winner: Slot, leaving: frozenset[str]
    ) -> str | None:
        holds = {slot.id for slot in before.holders()}
        still = {slot.id for slot in after.waiters()} - {slot.id for slot in after.holders()}
        for waiter in before.waiters():
            if waiter.id == winner.id:
                return None
            if waiter.id in holds or waiter.id in leaving or waiter.until == OVER:
                continue
            if waiter.id in still and not self._is_dead(state, int(waiter.alive)):
                return f"{winner.id} overtakes {waiter.id}, which stood in line before it"
        return None

    def violation(self, state: State) -> str | None:
        """Return what is wrong with a state, or None."""
        if state[1] is not None:
            return str(state[1])
        files: Files = state[0]
        holders, idle = [], []
        quiet, waits = not self.configuration.looks, False
        for number, caller in enumerate(state[3:]):
            if caller.dead:
                continue
            request = self.request(number, caller)
            if isinstance(request, Hold):
                quiet = False
                if caller.lease in HOLDING and not caller.evicted:
                    holders.append(number)
                if request.held.claim.id != caller.id or request.held.fence != _fence_of(caller.id):
                    return f"{NAMES[number]} is granted another claim than its own"
            elif isinstance(request, Begin):
                idle.append(NAMES[number])
            elif isinstance(request, Wait) and self._why_awake(state, caller) is None:
                waits = True
            else:
                quiet = False
        if len(holders) > 1:
            taken = [(self.roles[each].units, self.roles[each].capacity) for each in holders]
            if not fits(*taken[0], taken[1:]):
                return f"{' and '.join(NAMES[each] for each in holders)} hold the lock at once"
        if idle:
            left = [slot.id for slot in [*files.holders(), *files.waiters()] if slot.id[0] in idle]
            if left and not self._is_dead(state, self.processes[NAMES.index(left[0][0])]):
                return f"{left[0][0]} has finished and its claim {left[0]} is left behind"
        if quiet and waits:
            return self._lost_waiter(state)
        return None

    def _lost_waiter(self, state: State) -> str:
        waiting = [
            NAMES[number]
            for number, caller in enumerate(state[3:])
            if not caller.dead and isinstance(self.request(number, caller), Wait)
        ]
        return f"nobody holds the lock, and nothing wakes {' and '.join(waiting)}"

    # -- bells, deaths, leases --------------------------------------------------------------------------

    def _rung(self, state: State, rings: tuple[Ring, ...]) -> State:
        if self.configuration.deaf:
            return state
        for alive, bell, told in rings:
            if not bell:
                continue
            for number, caller in enumerate(state[3:]):
                # The bell of a slot is that of its owner; a stale one has no listener, or wakes it for nothing.
                owner = told.id[0] if told is not None else None
                if str(self.processes[number]) != alive or caller.bell is None or caller.dead:
                    continue
                if owner not in (None, NAMES[number]):
                    continue
                said = told.id if told is not None else (caller.bell if caller.bell != SILENT else LOOK)
                state = _with(state, number, caller._replace(bell=said))
        return state

    def _kills(self, state: State) -> Iterator[Successor[State]]:
        for process in sorted(set(self.processes)):
            if not self._is_dead(state, process):
                label = f"{self._people(process)} is killed"
                yield "kill", label, FAULT, _spent(self._killed(state, process), "kills")

    def _killed(self, state: State, process: int) -> State:
        for number, its_process in enumerate(self.processes):
            if its_process == process:
                state = _with(state, number, Caller(self.automata[number].start, dead=True))
        return state

    def _is_dead(self, state: State, process: int) -> bool:
        dead: bool = state[3 + self.processes.index(process)].dead
        return dead

    def _people(self, process: int) -> str:
        return " and ".join(
            NAMES[number] for number, its_process in enumerate(self.processes) if its_process == process
        )

    def _lapses(self, state: State) -> Iterator[Successor[State]]:
        files: Files = state[0]
        for number, caller in enumerate(state[3:]):
            request = self.request(number, caller)
            if caller.dead or isinstance(request, Begin | Leave):
                continue
            following = {LIVE: ENDED, SENT: SENT_ENDED, SENT_ENDED: SENT_BOTH}.get(caller.lease)
            if following is not None:
                after = _with(state, number, caller._replace(lease=following))
                yield "clock", f"{NAMES[number]}'s own deadline passes", FAULT, _spent(after, "lapses")
        for slot in {*files.holders(), *files.waiters()}:
            number = NAMES.index(slot.id[0])
            owner: Caller = state[3 + number]
            if owner.dead or slot.until == OVER:
                continue
            ended = owner.lease in (ENDED, SENT_ENDED, SENT_BOTH) and owner.id == slot.id
            leaving = isinstance(self.request(number, owner), Leave | Begin)
            if slot.until == EARLIER or ended or leaving or owner.id != slot.id:
                after = _files(state, _slots(files, slot.id, OVER))
                label = f"the lease of {slot.id} ends in the store"
                yield "clock", label, FAULT, after if ended else _spent(after, "lapses")

    def _renewals(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        name = NAMES[number]
        if caller.lease == LIVE:
            sent = _with(state, number, caller._replace(lease=SENT))
            yield ("renew", number), f"{name} sends a renewal", None, sent
        elif caller.lease in (SENT, SENT_ENDED, SENT_BOTH):

            def is_alive(token: str) -> bool:
                return not self._is_dead(state, int(token))

            stepped = self.steps.change(state[0], is_alive, lambda step: step.renew(caller.id, LATER))
            after, wrong = self._judged(state, state[0], stepped.actions, frozenset())
            old, new = caller.lease == SENT, caller.lease != SENT_BOTH
            lease = LIVE if (stepped.answer and new) or (not stepped.answer and old) else ENDED
            state = _files(state, after if stepped.actions else state[0], wrong)
            renewed = _with(state, number, caller._replace(lease=lease))
            label = f"{name}'s renewal is {'done' if stepped.answer else 'refused'}"
            yield ("renew", number), label, None, renewed

    def _evictions(self, state: State) -> Iterator[Successor[State]]:
        files: Files = state[0]

        def is_alive(token: str) -> bool:
            return not self._is_dead(state, int(token))

        for id in sorted({slot.id for slot in [*files.holders(), *files.waiters()]}):
            stepped = self.steps.change(files, is_alive, lambda step, id=id: step.evict(id))
            for outcome in self._broken_off(state, f"somebody evicts {id}", id, stepped):
                if outcome.done:
                    after = self._rung(_files(state, outcome.files, outcome.wrong), outcome.rings)
                    number = NAMES.index(id[0])
                    if after[3 + number].id == id and not after[3 + number].dead:
                        after = _with(after, number, after[3 + number]._replace(evicted=True))
                    yield "evict", outcome.words, FAULT, _spent(after, "evictions")

    def _tidying(self, state: State) -> Iterator[Successor[State]]:
        def is_alive(token: str) -> bool:
            return not self._is_dead(state, int(token))

        stepped = self.steps.tidy(state[0], is_alive)
        if stepped is not None:
            for outcome in self._broken_off(state, "somebody removes the files of the name", "", stepped):
                words = outcome.words if outcome.done else f"somebody is killed cleaning up {outcome.words}"
                yield "tidy", words, FAULT, _files(state, outcome.files, outcome.wrong)

    # -- the caller's own requests, which nobody else can see -----------------------------------------

    def _resumed(self, state: State, number: int, answer: object) -> State:
        """The state after an answer to a caller, up to its next request that others could notice."""
        automaton = self.automata[number]
        caller: Caller = state[3 + number]
        files: Files = state[0]
        if isinstance(self.request(number, caller), Begin):
            caller = caller._replace(id=str(answer))
        local = automaton.step(caller.local, answer)
        while True:
            request = automaton.requests[local]
            if isinstance(request, Now):
                caller = caller._replace(lease=LIVE)
                if self.configuration.lapses:
                    files = _slots(files, caller.id, EARLIER)
                local = automaton.step(local, STARTED)
            elif isinstance(request, FreshId):
                fresh = self._fresh(_with(state, number, caller), NAMES[number])
                caller = caller._replace(id=fresh, evicted=False)
                local = automaton.step(local, fresh)
            elif isinstance(request, Subscribe):
                caller = caller._replace(bell=SILENT)
                local = automaton.step(local, "bell")
            elif isinstance(request, Before) and request.moment != LEASE_ENDS:
                local = automaton.step(local, not caller.timed_out)
            elif isinstance(request, Before) and not self.configuration.lapses:
                local = automaton.step(local, True)
            else:
                break
        if isinstance(request, Begin):
            caller = Caller(local)
        elif isinstance(request, Hold | Leave):
            caller = caller._replace(local=local, bell=None, watched=frozenset(), timed_out=False)
            if isinstance(request, Leave):
                caller = caller._replace(lease=LIVE, evicted=False)
        else:
            caller = caller._replace(local=local)
        return _with(state if files is state[0] else _files(state, files), number, caller)

    def _fresh(self, state: State, name: str) -> str:
        """An id that is nowhere any more; it stands for one that was never used."""
        files: Files = state[0]
        used = {slot.id for slot in [*files.holders(), *files.waiters()]}
        used |= {caller.bell for caller in state[3:]}
        return next(id for id in (name, f"{name}'", f"{name}''", f"{name}'''") if id not in used)


def _fence_of(id: str) -> Any:
    """What a caller is told as the fence of a claim: a name that shows whose it is."""
    return f"the fence of {id}"


def _told(turn: Any) -> str:
    return {
        "using": "it holds the lock",
        "pending": "it stands in line",
        "occupied": "somebody waits or holds it, it needs a bell",
        "refused": "refused",
        "gone": "its claim is gone",
    }[turn.state]


def _with(state: State, number: int, caller: Caller) -> State:
    return (*state[: 3 + number], caller, *state[4 + number :])


def _files(state: State, files: Files, wrong: str | None = None) -> State:
    return (files, wrong or state[1], *state[2:])


def _spent(state: State, what: str) -> State:
    budget: Budget = state[2]
    return (*state[:2], budget._replace(**{what: getattr(budget, what) - 1}), *state[3:])


def _slots(files: Files, id: str, until: float) -> Files:
    """The files with the lease of a claim set, unless it is shorter already."""
    using = tuple(
        slot._replace(until=min(slot.until, until)) if isinstance(slot, Slot) and slot.id == id else slot
        for slot in files.using
    )
    pending = tuple(
        slot._replace(until=min(slot.until, until)) if slot is not None and slot.id == id else slot
        for slot in files.pending
    )
    return files._replace(using=using, pending=pending)
