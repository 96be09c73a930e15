"""Processes that let in successors locally, one server, and the messages between them, which may be lost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from interlock.core.claims import USING
from interlock.core.line import Line
from interlock.core.queue import Granted
from interlock.runtime.waiters import HandOver, Successors
from model_checker import verdicts
from model_checker.explore import Actor, Successor, Tag, put
from model_checker.handoff.configurations import Configuration
from model_checker.handoff.server import OVER, SERVER, Promoted, Server, expired
from model_checker.handoff.state import Caller, Forgotten, State, Table

REQUESTS = ("enter", "leave", "renew", "complete", "adopt", "downgrade")
INSIDE = ("inside", "reading")
END, FAULT = "end", "fault"
Step = tuple[Actor, str, State]


class _Waiter:
    """The waiter of a caller, which records its notification."""

    def __init__(self, words: dict[str, int]) -> None:
        self.words = words

    def wake(self, message: Granted | None = None) -> None:
        """Record the message."""
        if message is not None:
            self.words[message.id] = message.fence


class World(verdicts.World):
    """A system for `explore`: the production registry of each process, a model of the server.

    Args:
        configuration: the callers, and the possible faults.
        make: makes the registry of a process.
        server: the server's behaviour.
        hand_over: makes a hand-over of that registry.
    """

    ends = True
    holds_tokens = False
    """True if a process counts a detached claim among those that it holds."""

    def __init__(
        self,
        configuration: Configuration,
        make: Callable[[], Successors] = Successors,
        server: Server = SERVER,
        hand_over: Callable[[str, str], HandOver] = HandOver,
    ) -> None:
        self.configuration = configuration
        self.registry = make()
        self.server = server
        self.hand_over = hand_over
        self.handed: dict[str, HandOver] = {}

    def init(self) -> State:
        """Return the state in which all callers are idle."""
        it = self.configuration
        tables: tuple[Table, ...] = (((), (), (), (), ()),) * (max(it.processes) + 1)
        callers = (Caller(),) * len(it.processes)
        return State(Line(), tables, callers, (), frozenset(), frozenset(), Forgotten(), ((), ()), 0, it)

    def violation(self, state: State) -> str | None:
        """Return the violation: two callers inside, a fence that fell, or a caller inside by a void promise."""
        inside = [each.id for each in state.callers if each.phase in INSIDE]
        readers = [each.id for each in state.callers if each.phase == "reading" or self._reads(each.id)]
        detached = [each.id for each in state.line.places if each.id in state.tokens[0] and each.state == USING]
        holders = [id for id in (*inside, *detached) if self._is_well(state, id)]
        if len(holders) > 1 and not set(holders) <= set(readers):
            return f"{' and '.join(holders)} hold the lock"
        promised = [id for id in inside if id in state.forgotten.promised]
        if promised and not state.net:
            return f"{promised[0]} holds the lock by a promise that is void"
        for _, _, after, before, _ in state.tables:
            if sorted((id, one) for one, (id, _, _) in after) != list(before):
                return "the two tables of a process disagree about which claim follows which"
        return state.wrong or None

    def _reads(self, id: str) -> bool:
        """Return True if a claim takes a part of the lock."""
        return bool(id) and int(id[1]) in self.configuration.plain

    def _is_well(self, state: State, id: str) -> bool:
        """Return True unless a claim may have been taken away."""
        return id not in state.over | state.evicted | state.forgotten.ids

    def successors(self, state: State) -> Iterator[Successor[State]]:
        """Return every possible next step."""
        for number, caller in enumerate(state.callers):
            for actor, words, after in self._of_caller(state, number, caller):
                yield actor, words, END if self.over(after) else None, after
        for actor, words, after in self._of_server(state):
            yield actor, words, END if self.over(after) else None, after
        for actor, words, after in self._mishaps(state):
            yield actor, words, FAULT, after

    def good(self, actor: Actor, tag: Tag) -> bool:
        """Return True for the last step."""
        return tag == END

    def limited(self, actor: Actor, tag: Tag) -> bool:
        """Return True for a fault."""
        return tag == FAULT

    def fair(self, actor: Actor) -> bool:
        """Return True for callers, the server and the net."""
        return actor != "fate"

    def over(self, state: State) -> bool:
        """Return True if all callers have finished or are dead."""
        return not state.tokens[0] and all(caller.phase in ("done", "dead") for caller in state.callers)

    # Steps of a caller.

    def _of_caller(self, state: State, number: int, caller: Caller) -> Iterator[Step]:
        phase, id, word = caller
        name = f"caller {number}"
        if phase == "idle":
            fresh = self._fresh(number, id)
            registry, words = self._thaw(state, number)
            registry.add(fresh, _Waiter(words))
            after = self._with(state, number, Caller("asked", fresh), registry, words)
            yield name, f"{name} asks as {fresh}", self._send(after, ("enter", fresh, False))
            for token in state.tokens[0]:
                taken = self._uses(state, token)
                callers = put(taken.callers, number, Caller("attaching", fresh))
                taken = self._send(taken._replace(callers=callers), ("adopt", fresh, (token, fresh, ())))
                yield name, f"{name} attaches {token} as {fresh}", taken
        elif phase == "waiting":
            if word:
                yield name, f"{name} takes what it was told", self._gets_in(state, number, word)
            registry, words = self._thaw(state, number)
            registry.add(id, _Waiter(words))
            looking = self._with(state, number, caller._replace(phase="looking"), registry, words)
            yield name, f"{name} looks", self._send(looking, ("enter", id, True))
            if state.left.cancels:
                yield name, f"{name} gives up", self._leaves(_less(state, "cancels"), number, "giving up")
        elif phase in INSIDE:
            yield name, f"{name} leaves", self._leaves(state, number, "leaving")
            if phase == "inside" and state.left.downgrades and not self._reads(id):
                after = self._asks(_less(state, "downgrades"), number, "downgrade", "reading")
                yield name, f"{name} becomes a reader", after
            if self.configuration.runs:
                yield name, f"{name} completes its run", self._asks(state, number, "complete", "completing")
            if state.left.renewals:
                yield name, f"{name} renews", self._asks(_less(state, "renewals"), number, "renew", phase)
            if state.left.detaches:
                yield name, f"{name} detaches", self._detaches(_less(state, "detaches"), number)

    def _gets_in(self, state: State, number: int, fence: int) -> State:
        """The caller enters the critical section, unless its lease has expired by its own clock."""
        id = state.callers[number].id
        if id in state.over:
            return self._leaves(state, number, "giving up")
        right = fence > state.last or id in state.evicted or id in state.forgotten.ids
        wrong = "" if right else f"fence {fence} is granted after {state.last}"
        callers = put(state.callers, number, Caller("inside", id))
        after = state._replace(callers=callers, last=max(state.last, fence), wrong=wrong)
        return self._asks_if_in_doubt(after, id)

    def _asks_if_in_doubt(self, state: State, id: str) -> State:
        """A holder that may have lost the lock asks the server at once."""
        number = next((at for at, each in enumerate(state.callers) if each.id == id and each.phase == "inside"), None)
        if number is None or id not in state.forgotten.doubted:
            return state
        forgotten = state.forgotten._replace(doubted=state.forgotten.doubted - {id})
        return self._asks(state._replace(forgotten=forgotten), number, "renew", "inside")

    def _asks(self, state: State, number: int, kind: str, phase: str) -> State:
        """A holder sends a request, which takes along the releases of its predecessors that have no answer."""
        id = state.callers[number].id
        registry, words = self._thaw(state, number)
        before = tuple(registry.before(id))
        after = self._with(state, number, Caller(phase, id), registry, words)
        return self._send(after, (kind, id, before))

    def _detaches(self, state: State, number: int) -> State:
        id = state.callers[number].id
        registry, words = self._thaw(state, number)
        before = tuple(registry.before(id))
        registry.drop_held(id)
        after = self._with(state, number, Caller("detaching", id), registry, words)
        return self._send(after, ("adopt", id, (id, f"{id[:2]}t{id[2:]}", before)))

    def _uses(self, state: State, token: str) -> State:
        """A token is used up."""
        unused, used = state.tokens
        left = tuple(each for each in unused if each != token)
        return state._replace(tokens=(left, used if token in used else (*used, token)))

    def _releases(self, state: State, token: str) -> State:
        """The process that has detached a token releases it."""
        some = self.configuration.processes.index(int(token[0]))
        registry, words = self._thaw(state, some)
        let_in = self._released(registry, token)
        after = self._with(self._uses(state, token), some, state.callers[some], registry, words)
        return self._send(after, ("leave", token, let_in))

    def _released(self, registry: Successors, id: str) -> str:
        """Release a claim in the registry of its process; return the successor that was let in, or ""."""
        handed = registry.leaves(id)
        if handed is None:
            return ""
        self.handed[id] = handed
        return handed.id

    def _leaves(self, state: State, number: int, phase: str) -> State:
        """The release of a grant, or the end of an acquire without one."""
        id = state.callers[number].id
        registry, words = self._thaw(state, number)
        let_in = self._released(registry, id)
        after = self._with(state, number, Caller(phase, id), registry, words)
        forgotten = after.forgotten
        if let_in in forgotten.ids:
            after = after._replace(forgotten=forgotten._replace(promised=forgotten.promised | {let_in}))
        return self._send(after, ("leave", id, let_in))

    def _ends(self, state: State, number: int, phase: str = "idle") -> State:
        """The call ends; another may follow."""
        id = state.callers[number].id
        if phase == "idle" and int(id[-1]) >= self.configuration.calls:
            phase = "done"
        return state._replace(callers=put(state.callers, number, Caller(phase, id)))

    # Steps of the server, and the arrival of messages.

    def _of_server(self, state: State) -> Iterator[Step]:
        seen = set()
        for at, message in enumerate(state.net):
            kind, id, *rest = message
            if kind in REQUESTS:
                if id not in seen:  # the requests of one claim overtake each other only on two connections
                    if not self.configuration.reorders:
                        seen.add(id)
                    after = self._performed(self._without(state, at), kind, id, *rest)
                    yield f"server {id}", f"the server performs {kind} {id}", after
            else:
                after = self._arrived(self._without(state, at), kind, id, *rest)
                yield f"net {kind} {id}", f"{kind} of {id} arrives", after
        for place in state.line.places:
            if place.id in state.over and place.until != OVER:
                after = state._replace(line=expired(state.line, place.id))
                yield f"clock {place.id}", f"{place.id} expires on the server", after
        for token in state.tokens[0]:
            yield f"token {token}", f"{token} is released", self._releases(state, token)

    def _performed(self, state: State, kind: str, id: str, what: Any) -> State:
        if kind == "enter":
            whole = int(id[1]) not in self.configuration.plain
            line, answer, promoted = self.server.enter(state.line, id, what, whole, self.configuration.runs)
            state = self._send(state._replace(line=line), ("stands", id, answer))
            return self._publish(state, promoted)
        if kind == "leave":
            line, removed, promoted = self.server.leave(state.line, id)
            return self._answers(state, line, "left", id, (removed, what), promoted, what)
        before = what[2] if kind == "adopt" else what
        line, promoted = self.server.take_along(state.line, before)
        if kind == "renew":
            state = self._send(state._replace(line=line), ("renewed", id, self.server.is_kept(line, id)))
            return self._publish(state, promoted)
        if kind == "downgrade":
            line, fence, others = self.server.downgrade(line, id, id)
            state = self._send(state._replace(line=line), ("downgraded", id, fence))
            return self._publish(state, tuple(each for each in (*promoted, *others) if each[0] != id))
        if kind == "adopt":
            line, fence = self.server.adopt(line, what[0], what[1])
            state = self._send(state._replace(line=line), ("adopted", id, (what[1], fence)))
            return self._publish(state, promoted)
        was_done = line.record_expires
        line, recorded, others = self.server.leave(line, id, 1)
        if was_done and recorded:
            state = state._replace(wrong=f"{id} has done the work again")
        return self._answers(state, line, "completed", id, (recorded, ""), (*promoted, *others), id)

    def _answers(
        self, state: State, line: Line, kind: str, id: str, what: tuple[Any, ...], promoted: Promoted, knows: str
    ) -> State:
        """The reply names the promoted claims of the same process; the others are notified by messages."""
        told = tuple(each for each in promoted if each[0] != knows)
        mine = tuple(each for each in told if each[0][0] == id[0])
        state = self._send(state._replace(line=line), (kind, id, (*what, mine)))
        return self._publish(state, tuple(each for each in told if each not in mine))

    def _publish(self, state: State, promoted: Promoted) -> State:
        for id, fence in promoted:
            state = self._send(state, ("word", id, fence))
        return state

    def _arrived(self, state: State, kind: str, id: str, what: Any) -> State:
        """A reply or a message reaches its process."""
        number = next((at for at, each in enumerate(state.callers) if each.id == id), None)
        process = int(id[0])
        some = next(at for at, each in enumerate(self.configuration.processes) if each == process)
        if kind == "word":
            registry, words = self._thaw(state, some)
            registry.notify(id, what)
            return self._with(state, some, state.callers[some], registry, words)
        if kind == "renewed":
            if what:
                return state
            registry, words = self._thaw(state, some)
            is_lost = number is not None and state.callers[number].phase in INSIDE
            if is_lost:
                registry.drop_held(id)
            state = self._with(state, some, state.callers[some], registry, words)
            if is_lost and self._is_well(state, id):
                state = state._replace(wrong=f"{id} is notified of a loss, but no other claim took the lock")
            return self._ends(state, number) if number is not None and is_lost else state
        if kind in ("left", "completed"):
            registry, words = self._thaw(state, some)
            done, let_in, granted = what
            for other, fence in granted:
                registry.notify(other, fence)
            handed = self.handed.pop(id, None)
            if handed is not None:
                done = handed.settle(done)
            if kind == "completed":
                registry.drop_held(id)
            state = self._with(state, some, state.callers[some], registry, words)
            if let_in and not done:
                state = self.doubts(state, let_in)
            if number is not None and state.callers[number].phase in ("leaving", "giving up", "completing"):
                phase = state.callers[number].phase
                told = phase == "completing" or (phase == "leaving" and not self.configuration.losses)
                if told and not done and self._is_well(state, id):
                    state = state._replace(wrong=f"{id} is {phase} a lock that it no longer held")
                return self._ends(state, number)
            return state
        if kind == "downgraded":
            lost = not what and number is not None and state.callers[number].phase == "reading"
            if lost and self._is_well(state, id):
                return state._replace(wrong=f"{id} is downgrading a lock that it no longer held")
            return state
        if kind == "adopted":
            return self._adopted(state, some if number is None else number, id, *what)
        if number is None or state.callers[number].phase not in ("asked", "looking"):
            return state
        return self._stands(state, number, what)

    def _adopted(self, state: State, number: int, id: str, new: str, fence: int) -> State:
        """A holder was detached, or a token attached."""
        phase = state.callers[number].phase
        registry, words = self._thaw(state, number)
        if fence and (phase == "attaching" or self.holds_tokens):
            registry.holds(new)
        state = self._with(state, number, state.callers[number], registry, words)
        if phase == "attaching":
            if not fence:
                return self._ends(state, number)  # the token was used before
            return state._replace(callers=put(state.callers, number, Caller("inside", id)))
        if fence:
            state = state._replace(tokens=((*state.tokens[0], new), state.tokens[1]))
        elif self._is_well(state, id):
            state = state._replace(wrong=f"{id} is detaching a lock that it no longer held")
        return self._ends(state, number)

    def _stands(self, state: State, number: int, answer: Any) -> State:
        """A caller receives the state of its claim."""
        caller = state.callers[number]
        registry, words = self._thaw(state, number)
        if isinstance(answer, int):
            registry.holds(caller.id)
            registry.remove(caller.id)
            return self._gets_in(self._with(state, number, caller, registry, words), number, answer)
        if answer is None:
            registry.drop_held(caller.id)
            if self._released(registry, caller.id) or caller.id in self.handed:
                self.handed.pop(caller.id).settle(False)
            return self._ends(self._with(state, number, caller, registry, words), number)
        before, fence = answer
        if fence:
            registry.follow(before, caller.id, fence)
        return self._with(state, number, caller._replace(phase="waiting"), registry, words)

    def doubts(self, state: State, id: str) -> State:
        """A promise to a claim may be void."""
        doubted = state.forgotten.doubted | {id}
        return self._asks_if_in_doubt(state._replace(forgotten=state.forgotten._replace(doubted=doubted)), id)

    # Faults.

    def _mishaps(self, state: State) -> Iterator[Step]:
        left = state.left
        places = state.line.places
        for id in [place.id for place in places if place.until != OVER]:
            if left.lapses and id not in state.over:
                yield "fate", f"the lease of {id} ends", _less(state, "lapses")._replace(over=state.over | {id})
        for id in [place.id for place in places if left.evictions]:
            line, promoted = self.server.evict(state.line, id)
            less = _less(state, "evictions")._replace(line=line, evicted=state.evicted | {id})
            yield "fate", f"{id} is evicted", self._publish(less, promoted)
        if left.losses:
            for at, message in enumerate(state.net):
                for after in self._bereft(self._without(_less(state, "losses"), at), message):
                    yield "fate", f"{message[0]} of {message[1]} is lost", after
        if left.forgets:
            ids = frozenset(each.id for each in places)
            promised = frozenset(each[2] for each in state.net if each[0] == "leave")
            known = state.forgotten
            forgotten = known._replace(ids=known.ids | ids, promised=known.promised | promised & ids)
            after = _less(state, "forgets")._replace(line=Line(max_fence=state.line.max_fence), forgotten=forgotten)
            yield "fate", "the server forgets the line", after
        for token in [each for each in state.tokens[1] if left.releases]:
            yield "fate", f"{token} is released again", self._releases(_less(state, "releases"), token)
        if left.kills:
            for process in set(self.configuration.processes):
                yield "fate", f"process {process} is killed", self._killed(state, process)

    def _bereft(self, state: State, message: tuple[Any, ...]) -> Iterator[State]:
        """A caller whose reply is lost asks again, gives up its claim, or its call fails."""
        kind, id, *_ = message
        number = next((at for at, each in enumerate(state.callers) if each.id == id), None)
        phase = "" if number is None or kind == "word" else state.callers[number].phase
        if number is None or phase not in ("asked", "looking", "leaving", "giving up"):
            if phase not in ("completing", "detaching", "attaching"):  # these are asked again by other code
                yield state
            return
        if phase == "asked":
            yield self._send(state, ("enter", id, False))
            registry, words = self._thaw(state, number)
            self._released(registry, id)
            given_up = self._with(state, number, state.callers[number], registry, words)
            yield self._ends(self._send(given_up, ("leave", id, "")), number)
        elif phase == "looking":
            yield state._replace(callers=put(state.callers, number, state.callers[number]._replace(phase="waiting")))
        else:
            let_in = next((each[2] for each in (message, *state.net) if each[0] == "leave" and each[1] == id), "")
            let_in = message[2][1] if kind == "left" else let_in
            yield self._send(state, ("leave", id, let_in))
            failed = self._ends(state._replace(over=state.over | {id}), number)  # its lease is not renewed
            yield self.doubts(failed, let_in) if let_in else failed

    def _killed(self, state: State, process: int) -> State:
        callers = state.callers
        over = state.over
        for number, its in enumerate(self.configuration.processes):
            if its == process and callers[number].phase != "done":
                over |= {callers[number].id}
                callers = put(callers, number, Caller("dead", callers[number].id))
        return _less(state, "kills")._replace(callers=callers, over=over)

    # Construction of states.

    def _fresh(self, number: int, id: str) -> str:
        call = int(id[-1]) + 1 if id else 1
        return f"{self.configuration.processes[number]}{number}{call}"

    def _send(self, state: State, message: tuple[Any, ...]) -> State:
        if message[0] in REQUESTS:
            return state._replace(net=(*state.net, message))
        net = [each for each in state.net if each[0] in REQUESTS]
        words = sorted([each for each in state.net if each[0] not in REQUESTS] + [message], key=repr)
        return state._replace(net=(*net, *words))

    def _without(self, state: State, at: int) -> State:
        return state._replace(net=state.net[:at] + state.net[at + 1 :])

    def _thaw(self, state: State, number: int) -> tuple[Successors, dict[str, int]]:
        """Make the registry of a caller's process from the state."""
        waiting, held, after, before, handed = state.tables[self.configuration.processes[number]]
        words: dict[str, int] = {}
        registry = self.registry
        registry.by_id.clear()
        registry.by_id.update((id, _Waiter(words)) for id in waiting)
        self.handed.clear()
        for released, next, carried in handed:
            self.handed[released] = self.hand_over(released, next)
            self.handed[released].carried = carried
        registry._held = {id: tuple(self.handed[each] for each in chain) for id, chain in held}
        registry._after = {
            id: (next, fence, tuple(self.handed[each] for each in between)) for id, (next, fence, between) in after
        }
        registry._before = dict(before)
        return registry, words

    def _with(self, state: State, number: int, caller: Caller, registry: Successors, words: dict[str, int]) -> State:
        """Return the state with the registry, the caller, and the notifications of other callers."""
        table: Table = (
            tuple(sorted(registry.by_id)),
            tuple(sorted((id, _unanswered(chain)) for id, chain in registry._held.items())),
            tuple(
                sorted((id, (next, fence, _unanswered(each))) for id, (next, fence, each) in registry._after.items())
            ),
            tuple(sorted(registry._before.items())),
            tuple(sorted((each.before, each.id, each.carried) for each in self.handed.values() if not each.answered)),
        )
        tables = put(state.tables, self.configuration.processes[number], table)
        callers = put(state.callers, number, caller)
        for at, each in enumerate(callers):
            if each.id in words and each.phase in ("waiting", "looking", "asked"):
                callers = put(callers, at, each._replace(word=words[each.id]))
        return state._replace(tables=tables, callers=callers)


def _unanswered(chain: Iterable[HandOver]) -> tuple[str, ...]:
    """The predecessors of a holder whose releases have no answer yet."""
    return tuple(each.before for each in chain if not each.answered)


def _less(state: State, fault: str) -> State:
    """The state in which a fault may happen once less."""
    return state._replace(left=replace(state.left, **{fault: getattr(state.left, fault) - 1}))
