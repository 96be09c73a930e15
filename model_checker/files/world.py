"""The world of the file store: callers of one name in processes that may be killed, stopped and cancelled.

The owner counts a lease from before the request, the store from the request's arrival.  So a lease may expire in the
store after it has expired for its owner, or after its owner has sent a later request.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.core.claims import USING, fits
from interlock.core.line import RENEWAL_GONE
from model_checker import verdicts
from model_checker.caller import Cancelled
from model_checker.explore import Actor, Successor, Tag
from model_checker.files.callers import Callers
from model_checker.files.client import Begin, Hold, Leave
from model_checker.files.configurations import Configuration
from model_checker.files.judging import Judge
from model_checker.files.state import (
    CLOCK,
    ENDED,
    FAULT,
    HOLDING,
    LIVE,
    NAMES,
    RENEW,
    SENT,
    SENT_BOTH,
    SENT_ENDED,
    Caller,
    State,
    enters,
    fence_of,
    spent,
    with_caller,
    with_files,
    with_lease,
)
from model_checker.files.steps import EARLIER, OVER, Files, told
from model_checker.runtime import Wait


class World(Callers, verdicts.World):
    """A configuration of callers on one name, with all possible faults.

    Args:
        configuration: the callers, and the possible faults.
        production: the decisions and the protocol, of the package or of a mutant.
    """

    def init(self) -> State:
        """Return the state in which all callers are idle."""
        return (Files(), None, self.configuration, *[Caller(automaton.start) for automaton in self.automata])

    def successors(self, state: State) -> Iterator[Successor[State]]:
        """Return every step of every caller, and every possible fault."""
        budget: Configuration = state[2]
        for number, caller in enumerate(state[3:]):
            if not caller.dead:
                yield from self.steps_of(state, number, caller)
                yield from self._broken_off_by_itself(state, number, caller)
                if self.configuration.renews and isinstance(self.request(number, caller), Hold):
                    yield from self._renewals(state, number, caller)
        if budget.kills:
            for process in sorted(set(self.processes)):
                if not self.is_dead(state, process):
                    dead = self.killed(state, process)
                    yield "kill", f"{self.people(process)} is killed", FAULT, spent(dead, "kills")
        if budget.lapses:
            yield from self._own_deadlines(state)
        if self.configuration.lapses:
            yield from self._lapses(state)
        if budget.evictions:
            yield from self._evictions(state)
        if self.configuration.tidies:
            yield from self._tidying(state)

    # -- what may befall a caller -----------------------------------------------------------------------

    def _broken_off_by_itself(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        name = NAMES[number]
        if isinstance(self.request(number, caller), Begin | Hold | Leave):
            return
        if self.roles[number].times_out and not caller.timed_out:
            after = with_caller(state, number, caller._replace(timed_out=True))
            yield (CLOCK, number), f"{name}'s time-out passes", FAULT, after
        if state[2].cancels:
            cancelled = self.resumed(state, number, Cancelled())
            yield "cancel", f"{name} is cancelled", FAULT, spent(cancelled, "cancels")

    def _own_deadlines(self, state: State) -> Iterator[Successor[State]]:
        for number, caller in enumerate(state[3:]):
            following = {LIVE: ENDED, SENT: SENT_ENDED, SENT_ENDED: SENT_BOTH}.get(caller.lease)
            if following is None or caller.dead or isinstance(self.request(number, caller), Begin | Leave):
                continue
            after = with_caller(state, number, caller._replace(lease=following))
            yield CLOCK, f"{NAMES[number]}'s own deadline passes", FAULT, spent(after, "lapses")

    def _lapses(self, state: State) -> Iterator[Successor[State]]:
        """Leases that expire in the store; this costs no budget if the owner's own deadline has passed."""
        files: Files = state[0]
        for id, until in sorted({(place.id, place.until) for place in files.places}):
            number = NAMES.index(id[0])
            owner: Caller = state[3 + number]
            if owner.dead or until == OVER:
                continue
            ended = owner.lease not in HOLDING and owner.id == id
            leaving = isinstance(self.request(number, owner), Leave | Begin)
            if ended or (state[2].lapses and (until == EARLIER or leaving or owner.id != id)):
                after = with_files(state, with_lease(files, id, OVER))
                yield CLOCK, f"the lease of {id} ends in the store", FAULT, after if ended else spent(after, "lapses")

    def _renewals(self, state: State, number: int, caller: Caller) -> Iterator[Successor[State]]:
        name = NAMES[number]
        if caller.lease == LIVE:
            sent = with_caller(state, number, caller._replace(lease=SENT))
            yield (RENEW, number), f"{name} sends a renewal", None, sent
        elif caller.lease in (SENT, SENT_ENDED, SENT_BOTH):
            is_alive = self.is_alive(state)
            ids = (caller.id,)
            stepped = self.steps.change(state[0], is_alive, ids, self.steps.line.renew, ids)
            done = stepped.answer != [RENEWAL_GONE]
            after, wrong = self._judge(state).after(state[0], stepped.actions)
            lasts = caller.lease != SENT_BOTH if done else caller.lease == SENT
            renewed = with_caller(state, number, caller._replace(lease=LIVE if lasts else ENDED))
            words = f"{name}'s renewal is {'done' if done else 'refused'}"
            rings = tuple(filter(None, map(told, stepped.actions)))
            yield (RENEW, number), words, None, self.rung(with_files(renewed, after, wrong), rings)

    def _judge(self, state: State) -> Judge:
        return Judge(self.is_alive(state), frozenset(), self.holding(state), self._most_rows)

    # -- what others do ---------------------------------------------------------------------------------

    def _evictions(self, state: State) -> Iterator[Successor[State]]:
        """A process outside evicts one claim, or all; no caller watches for its death in the middle of the step."""
        files: Files = state[0]
        is_alive = self.is_alive(state)
        judge = self._judge(state)
        ids = sorted(place.id for place in files.places)
        for victims in [[id] for id in ids] + ([ids] if len(ids) > 1 else []):
            id = victims[0] if len(victims) == 1 else None
            stepped = self.steps.change(files, is_alive, victims, self.steps.line.evict, id)
            for outcome in self.broken_off(files, f"somebody evicts {id or 'all claims'}", "", stepped, judge):
                if not outcome.done and not (state[2].kills and self.configuration.looks):
                    continue
                after = self.rung(with_files(state, outcome.files, outcome.wrong), outcome.rings)
                for number, caller in enumerate(after[3:]):
                    if caller.id in victims:
                        after = with_caller(after, number, caller._replace(evicted=True))
                if outcome.done:
                    yield "evict", outcome.words, FAULT, spent(after, "evictions")
                else:
                    dead = spent(spent(after, "evictions"), "kills")
                    yield "evict", f"somebody is killed {outcome.words}", FAULT, dead

    def _tidying(self, state: State) -> Iterator[Successor[State]]:
        stepped = self.steps.tidy(state[0], self.is_alive(state))
        if stepped is not None:
            judge = self._judge(state)
            for outcome in self.broken_off(state[0], "somebody removes the file of the name", "", stepped, judge):
                words = outcome.words if outcome.done else f"somebody is killed {outcome.words}"
                yield "tidy", words, FAULT, with_files(state, outcome.files, outcome.wrong)

    # -- what has to happen -----------------------------------------------------------------------------

    def good(self, actor: Actor, tag: Tag) -> bool:
        """Return True if a caller becomes a holder."""
        return tag in [enters(name) for name in NAMES]

    def limited(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a fault."""
        return tag == FAULT

    def fair(self, actor: Actor) -> bool:
        """Return True for an actor whose steps must be taken in the end: a caller within a call."""
        return isinstance(actor, int)

    def over(self, state: State) -> bool:
        """Return True if all callers are dead."""
        return all(caller.dead for caller in state[3:])

    def entries(self) -> dict[Any, Tag]:
        """Return the entries of the callers that wait as long as it takes."""
        return {
            name: enters(name)
            for name, role in zip(NAMES, self.roles, strict=False)
            if role.wait and not role.times_out
        }

    def waits(self, state: State, name: Any) -> bool:
        """Return True if a caller lives, and waits."""
        number = NAMES.index(name)
        caller: Caller = state[3 + number]
        return not caller.dead and not isinstance(self.request(number, caller), Begin | Hold)

    # -- what must hold of every state ------------------------------------------------------------------

    def violation(self, state: State) -> str | None:
        """Return what is wrong with a state, or None."""
        if state[1] is not None:
            return str(state[1])
        return self._two_holders(state) or self._left_behind(state) or self._lost_waiter(state)

    def _two_holders(self, state: State) -> str | None:
        holders = []
        for number, caller in enumerate(state[3:]):
            request = self.request(number, caller)
            if caller.dead or not isinstance(request, Hold):
                continue
            if request.held.claim.id != caller.id or request.held.fence != fence_of(caller.id):
                return f"{NAMES[number]} is granted another claim than its own"
            if caller.lease in HOLDING and not caller.evicted:
                holders.append(number)
        taken = [(self.roles[each].units, self.roles[each].capacity) for each in holders]
        if len(taken) > 1 and not fits(*taken[0], taken[1:]):
            return f"{' and '.join(NAMES[each] for each in holders)} hold the lock at the same time"
        return None

    def _left_behind(self, state: State) -> str | None:
        files: Files = state[0]
        for place in files.places:
            number = NAMES.index(place.id[0])
            owner: Caller = state[3 + number]
            if not owner.dead and isinstance(self.request(number, owner), Begin):
                return f"{NAMES[number]} has finished, and its claim {place.id} is left behind"
        return None

    def _lost_waiter(self, state: State) -> str | None:
        """If all other callers are idle, dead or in the critical section: return a waiter that nothing wakes."""
        asleep = set()
        for number, caller in enumerate(state[3:]):
            request = self.request(number, caller)
            if caller.dead or isinstance(request, Begin | Hold):
                continue
            if not isinstance(request, Wait) or self.why_awake(state, number, caller) is not None:
                return None
            asleep.add(caller.id)
        if not asleep:
            return None
        files: Files = state[0]
        is_alive = self.is_alive(state)
        live = [place for place in files.places if place.until > OVER and is_alive(place.liveness_token)]
        holds = self.holding(state)
        holders = [place for place in live if place.state == USING or place.id in holds]
        unaware = sorted(asleep.intersection(place.id for place in holders))
        if unaware:
            return f"{unaware[0]} holds the lock, and is not notified"
        head = next((place for place in live if place not in holders), None)
        if head is None:
            return f"{min(asleep)} waits without a place in line"
        if fits(head.units, head.capacity, [(place.units, place.capacity) for place in holders]):
            return f"the lock is free for {head.id}, and nothing wakes it"
        return None
