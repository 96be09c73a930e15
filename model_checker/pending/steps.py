"""The steps of one caller, as far as they do not depend on other callers, and its possible faults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from interlock.core.errors import UnknownOutcome
from interlock.core.queue import Granted, PendingRecord
from model_checker import caller as call
from model_checker.automaton import Automaton, Final
from model_checker.pending.line import do
from model_checker.pending.options import NAMES, Options
from model_checker.pending.register import ON_LINE, Ask
from model_checker.pending.store import CURRENT, OLD, RENEWAL, Effect, Store, seen, write
from model_checker.runtime import Before, Now, Sleep, Wait

CRASH, LAPSE, CANCEL, TIMEOUT, LOST = "crash", "lapse", "cancel", "timeout", "lost"
RENEW, BUSY, END = "renew", "busy", "end"
ENVIRONMENT, CLOCK, NETWORK = "environment", "clock", "network"
NO_ANSWER = UnknownOutcome("no answer came")
BROKEN_OFF = call.Cancelled()


class Process(NamedTuple):
    """One caller.

    Attributes:
        local: its local state in the automaton.
        passed: True if its own deadline has passed.
        renewal: the deadline counted from the watchdog's last reading of the clock: 0 none, 1 ahead, 2 passed too.
        acquiring, holding: True while it is in an acquire, or holds the lock.
        dead: True if it has crashed.
        spoiled: True if a request of it was lost, so that a record may be left behind.
    """

    local: int
    passed: bool = False
    renewal: int = 0
    acquiring: bool = False
    holding: bool = False
    dead: bool = False
    spoiled: bool = False


class Step(NamedTuple):
    """A step of one caller, as far as it does not depend on other callers.

    `pays`: the field of the book that counts it; `flown`: a request that continues without its sender; `fence`: the
    fence that it grants; `wrong`: the finding.
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


class Caller:
    """One caller of the world.

    Args:
        options: the options of the world.
        number: the number of the caller.
        automaton: its protocol.
    """

    def __init__(self, options: Options, number: int, automaton: Automaton) -> None:
        self.options = options
        self.number = number
        self.name = NAMES[number]
        self.automaton = automaton
        self._known: dict[tuple[Store, Process], list[Step]] = {}

    def steps(self, store: Store, process: Process) -> list[Step]:
        """Return every step of a caller in this state, and its possible faults."""
        known = self._known.get((store, process))
        if known is None:
            known = self._known[store, process] = list(self._all_steps(store, process))
        return known

    def _all_steps(self, store: Store, process: Process) -> Iterator[Step]:
        request = self.automaton.requests[process.local]
        if not isinstance(request, Final):
            yield from self._passing(store, process)
        if process.dead or isinstance(request, Final):
            return
        if isinstance(request, Ask):
            yield from self._asked(store, process, request)
        else:
            yield from self._alone(store, process, request)
        if self.options.crashes:
            dead = _dead(process)
            yield Step(ENVIRONMENT, f"{self.name} crashes", CRASH, store, dead, "crashes")
            if isinstance(request, Ask) and request.verb != "list":
                words = f"{self.name} crashes, its request is under way"
                yield Step(ENVIRONMENT, words, CRASH, store, dead, "crashes", request)

    def _passing(self, store: Store, process: Process) -> Iterator[Step]:
        """The deadline of a claim passes on its owner's clock."""
        if not self.options.leases:
            return
        if not process.passed:
            after, words = process._replace(passed=True), f"{self.name}'s own deadline passes"
        elif process.renewal == 1:
            after, words = process._replace(renewal=2), f"{self.name}'s next deadline passes too"
        else:
            return
        if process.dead:
            yield Step(CLOCK, words, None, store, after)
        else:
            yield Step(ENVIRONMENT, words, LAPSE, store, after, "lapses")

    def _asked(self, store: Store, process: Process, request: Any) -> Iterator[Step]:
        """A request to the store: it is answered, or the reply is lost, or the call is cancelled."""
        for effect in self._effects(store, process, request):
            yield self._answered(store, process, effect)
            if self.options.lost:
                words = f"{self.name} {effect.words}, but the answer is lost"
                yield self._thrown(effect.store, process, NO_ANSWER, words, "lost")
        spoiled = process._replace(spoiled=True)
        if self.options.busy and request.verb in ON_LINE:
            busy = Effect("finds the store busy", None, store)
            yield self._answered(store, process, busy)._replace(actor=ENVIRONMENT, tag=BUSY)
        if self.options.lost:
            words = f"a request of {self.name} is lost: {request.verb}"
            yield self._thrown(store, spoiled, NO_ANSWER, words, "lost")
            if request.verb != "list":
                words = f"a request of {self.name} gets no answer and is still under way: {request.verb}"
                yield self._thrown(store, spoiled, NO_ANSWER, words, "lost")._replace(flown=request)
        if process.acquiring and self.options.cancels != 0:
            yield self._thrown(store, process, BROKEN_OFF, f"the call of {self.name} is broken off", "cancels")
            if self.options.lost and request.verb != "list":
                words = f"the call of {self.name} is broken off while its request is under way: {request.verb}"
                yield self._thrown(store, spoiled, BROKEN_OFF, words, "cancels")._replace(flown=request)

    def _effects(self, store: Store, process: Process, request: Any) -> Iterator[Effect]:
        if request.verb == "list":
            records = seen(store.rows, self.name)
            return iter([Effect(f"lists: {_shown(records)}", records, store)])
        lease = moment(self.options, process) if request.id in NAMES else OLD
        return effects(self.options, store, request, lease)

    def _answered(self, store: Store, process: Process, effect: Effect) -> Step:
        words = f"{self.name} {effect.words}"
        store, process = self._counted(effect.store, process, effect.answer is not None)
        return self.settled(store, process, self.automaton.step(process.local, effect.answer), words)

    def _counted(self, store: Store, process: Process, answered: bool) -> tuple[Store, Process]:
        """Count the lease of a claim in a line from before the last answered step."""
        request = self.automaton.requests[process.local]
        if not isinstance(request, Ask) or request.verb != "enter" or not process.renewal:
            return store, process
        if answered:
            process = process._replace(passed=process.renewal == 2)
            store = self._leased(store, self.name, CURRENT, OLD)
        return self._leased(store, self.name, RENEWAL, CURRENT), process._replace(renewal=0)

    def _thrown(self, store: Store, process: Process, error: BaseException, words: str, pays: str) -> Step:
        store, process = self._counted(store, process, False)
        local = self.automaton.step(process.local, error)
        lost = pays == "lost"
        process = process._replace(acquiring=process.acquiring and lost, spoiled=process.spoiled or lost)
        step = self.settled(store, process, local, words)
        return step._replace(actor=ENVIRONMENT, tag=CANCEL if pays == "cancels" else LOST, pays=pays)

    def _alone(self, store: Store, process: Process, request: Any) -> Iterator[Step]:
        """A request that does not go to the store, at which the caller may crash or be cancelled."""

        def going_on(answer: object, words: str) -> Step:
            return self.settled(store, process, self.automaton.step(process.local, answer), words)

        match request:
            case call.Work():
                yield going_on("leave", f"{self.name} leaves the critical section")
                if self.options.heartbeats and not process.passed:
                    yield going_on("renew", f"{self.name}'s watchdog is about to renew")._replace(tag=RENEW)
            case Before(call.TIME_IS_OVER):
                yield going_on(True, f"{self.name} still has time")
                yield going_on(False, f"the time of {self.name}'s call is over")._replace(
                    actor=ENVIRONMENT, tag=TIMEOUT
                )
            case Before():
                yield going_on(not process.passed, f"{self.name} looks at its own deadline: {_ahead(process)}")
            case Wait() | Sleep():
                yield going_on(None, f"{self.name} has waited")
                for word in store.words if isinstance(request, Wait) else ():
                    if word[0][0].upper() == self.name:
                        rest = store._replace(words=tuple(each for each in store.words if each != word))
                        local = self.automaton.step(process.local, Granted(*word))
                        yield self.settled(rest, process, local, f"{self.name} is told that {word[0]} holds the lock")
                if self.options.cancels == 0 or not process.acquiring:
                    return
                words = f"the call of {self.name} is broken off at a wait"
                yield self._thrown(store, process, BROKEN_OFF, words, "cancels")
            case _:
                raise TypeError(f"not a request of the protocol: {request.verb}")

    def settled(self, store: Store, process: Process, local: int, words: str = "") -> Step:
        """Continue to the next request at which another caller or a fault can intervene, as one step."""
        automaton, name = self.automaton, self.name
        tag: object = None
        fence = wrong = None
        while True:
            request = automaton.requests[local]
            answer: object = None
            match request:
                case Now():
                    answer = call.MOMENT
                    # Except if the time is read only for the duration of a wait.
                    if isinstance(automaton.requests[automaton.step(local, answer)], Wait):
                        pass
                    elif self.options.steps is not None and process.acquiring:
                        process = process._replace(renewal=1)
                        store = self._leased(store, name, RENEWAL, CURRENT)
                    else:
                        process = process._replace(passed=False, renewal=0)
                        store = self._leased(store, name, CURRENT, OLD)
                case Before(deadline) if deadline != call.TIME_IS_OVER and not self.options.stepwise:
                    answer = not process.passed
                    words += "" if answer else ", too late by its own clock"
                case Sleep() if self.options.cancels == 0 or not process.acquiring:
                    pass
                case Wait() if self.options.steps is None and (self.options.cancels == 0 or not process.acquiring):
                    pass
                case call.Acquiring():
                    process = process._replace(acquiring=True)
                case call.Withdrawing():
                    process = process._replace(acquiring=False)
                case call.Enter(granted):
                    process = process._replace(holding=True, acquiring=False, renewal=0)
                    tag, fence = ("enter", self.number), granted
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
                    wrong = wrong or self._left_behind(store, process)
                    words_left = tuple(word for word in store.words if word[0][0].upper() != name)
                    store = store._replace(words=words_left)
                    process = process._replace(acquiring=False, spoiled=process.spoiled and _has_rows(store, name))
                case _:
                    # A caller that has finished does not read its clock any more.
                    passed = process.passed or isinstance(request, Final)
                    if isinstance(request, Final) and request.how == "raised":
                        wrong = f"error: {request.value!r}"
                    process = process._replace(local=local, passed=passed)
                    return Step(self.number, words, tag, store, process, fence=fence, wrong=wrong)
            local = automaton.step(local, answer)

    def _left_behind(self, store: Store, process: Process) -> str | None:
        if process.spoiled or not _has_rows(store, self.name):
            return None
        return f"left behind: {self.name} has finished and its record is still there"

    def _leased(self, store: Store, id: str, old: int, new: int) -> Store:
        """Rename the moment from which the lease of a record counts."""
        if not self.options.leases or all(row.id != id or row.lease != old for row in store.rows):
            return store
        rows = (row._replace(lease=new) if row.id == id and row.lease == old else row for row in store.rows)
        return store._replace(rows=tuple(rows))


def effects(options: Options, store: Store, request: Any, lease: int) -> Iterator[Effect]:
    """Yield every possible effect of a writing request, on records or on a line; as `store.write`."""
    if request.verb in ON_LINE:
        return do(options, store, request, lease)
    return write(options, store, request, lease)


def moment(options: Options, process: Process) -> int:
    """Return the moment from which a lease counts that begins or is renewed now."""
    return RENEWAL if process.renewal and options.leases else CURRENT


def _shown(records: tuple[PendingRecord, ...]) -> str:
    """A list as text."""
    words = [f"{record.id} {record.state}{' (expired)' if record.expired else ''}" for record in records]
    return ", ".join(words) or "nothing"


def _has_rows(store: Store, name: str) -> bool:
    return any(row.id[0].upper() == name for row in store.rows)


def _dead(process: Process) -> Process:
    """A crashed caller; for a holder, the deadline still counts."""
    return Process(0, passed=process.passed or not process.holding, holding=process.holding, dead=True)


def _ahead(process: Process) -> str:
    return "it has passed" if process.passed else "it is ahead"
