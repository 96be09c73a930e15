"""Mutants with one safeguard removed: the checker must catch each, or the safeguard would not be needed.

A mutant is a change in the text of a production module, which is then executed as a fresh module.
"""

from __future__ import annotations

from dataclasses import dataclass

from proof.files.configurations import (
    EXCLUSIVE,
    READER,
    TIMED,
    WRITER,
    Configuration,
    permits,
)
from proof.files.production import Production, changed

_E, _X, _S = EXCLUSIVE, WRITER, READER
_PLAIN = Configuration("N=2", (_E, _E))
_THREE = Configuration("N=3", (_E, _E, _E))
_KILL = Configuration("N=2, 1 kill", (_E, _E), kills=1)
_CANCEL_3 = Configuration("N=3, 1 kill, 1 cancelled", (_E, _E, _E), kills=1, cancels=1)
_EVICT_3 = Configuration("N=3, 1 kill, 1 eviction", (_E, _E, _E), kills=1, evictions=1)
_SHARED = Configuration("X S S, 1 kill", (_X, _S, _S), kills=1)
_KILLS_3 = Configuration("N=3, 2 kills", (_E, _E, _E), kills=2)
_PERMITS = Configuration("semaphore of 2, N=4, 1 kill", (permits(1, 2),) * 4, kills=1)
_LAPSE = Configuration("N=2, 1 lapse", (_E, _E), lapses=1, looks=True)
_LAPSE_3 = Configuration("N=3, 1 lapse", (_E, _E, _E), lapses=1, looks=True)
_LAPSES = Configuration("N=2, 2 lapses, renewals", (_E, _E), lapses=2, renews=True, looks=True)
_TIMED = Configuration("waits and times out", (_E, TIMED))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard removed.

    `module`: line, plan or claiming; `old`: a piece of its text that occurs once; `new`: its replacement;
    `configuration`: the world in which it is caught; `expected`: a part of the finding.
    """

    name: str
    module: str
    old: str
    new: str
    configuration: Configuration
    expected: str

    def production(self) -> Production:
        """Return the production code with this change.

        Raises:
            ValueError: the piece of text does not occur exactly once.
        """
        return changed(self.module, self.old, self.new)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a waiter's slot says that it holds before those who go are gone",
        "plan",
        """        *(Write(row, None) for row in going),
        *(Tell(place) for place in told if place.id not in me),
        *writes,
""",
        """        *(Tell(place) for place in told if place.id not in me),
        *writes,
        *(Write(row, None) for row in going),
""",
        _EVICT_3,
        "a fence that is not its own",
    ),
    Mutant(
        "a waiter's slot is written before it is told",
        "plan",
        """        *(Tell(place) for place in told if place.id not in me),
        *writes,
""",
        """        *writes,
        *(Tell(place) for place in told if place.id not in me),
""",
        _SHARED,
        "nothing tells it so",
    ),
    Mutant(
        "the first in line is told first",
        "plan",
        "told.sort(key=_fence, reverse=True)",
        "told.sort(key=_fence)",
        _SHARED,
        "nothing wakes it",
    ),
    Mutant(
        "a promoted waiter is not told",
        "plan",
        "        *(Tell(place) for place in told if place.id not in me),\n",
        "",
        _PLAIN,
        "nothing tells it so",
    ),
    Mutant(
        "a waiter that must watch others is not told",
        "plan",
        "[*step.promoted, *_unaware(before, step)]",
        "[*step.promoted]",
        _CANCEL_3,
        "nothing wakes it",
    ),
    Mutant(
        "the first in line watches nobody",
        "plan",
        "return {place.alive for place in places[:at]}",
        "return set()",
        _KILL,
        "nothing wakes it",
    ),
    Mutant(
        "the first in line watches one of several holders",
        "plan",
        "return {place.alive for place in places[:at]}",
        "return {place.alive for place in places[:at][-1:]}",
        _PERMITS,
        "nothing wakes it",
    ),
    Mutant(
        "a waiter does not watch the one before it",
        "plan",
        "return {places[at - 1].alive}",
        "return set()",
        _KILLS_3,
        "nothing wakes it",
    ),
    Mutant(
        "a fence follows those in line only, not of the slots that are free",
        "plan",
        "top_of(slots), done)",
        "max((place.fence for place in places), default=0), done)",
        _THREE,
        "is not higher than all before",
    ),
    Mutant(
        "dead processes keep their places",
        "line",
        "each.until > now and each.alive not in dead",
        "each.until > now",
        _KILL,
        "though its process is dead",
    ),
    Mutant(
        "ended leases keep their places",
        "line",
        "each.until > now and each.alive not in dead",
        "each.alive not in dead",
        _LAPSE,
        "is revived",
    ),
    Mutant(
        "a renewal revives a lease that has ended",
        "line",
        "    now = line if settled.line is None else settled.line\n    wanted",
        "    now = line\n    wanted",
        _LAPSES,
        "is revived",
    ),
    Mutant(
        "leave frees whoever holds, not the own claim",
        "line",
        "    mine = next((each for each in now.places if each.id == id), None)\n",
        "    mine = next(iter(now.places), None)\n",
        _LAPSE_3,
        "hold the lock at once",
    ),
    Mutant(
        "a new claim overtakes the waiters",
        "line",
        "if has_room(now.places, spec.units, spec.capacity):",
        "if has_room([each for each in now.places if each.state == USING], spec.units, spec.capacity):",
        Configuration("X S S", (_X, _S, _S)),
        "overtakes",
    ),
    Mutant(
        "who leaves promotes nobody",
        "line",
        "    after = settle(now, clock)\n",
        "    after = Step(None, None)\n",
        _PLAIN,
        "nothing wakes it",
    ),
    Mutant(
        "an evicted waiter is not told",
        "line",
        "    told = tuple(place for place in out if place.state == PENDING)\n",
        "    told = ()\n",
        Configuration("N=2, 1 eviction", (_E, _E), evictions=1),
        "waits without a place in line",
    ),
    Mutant(
        "no deadline check after the promotion",
        "claiming",
        "                if await rt.before(call.now, until):\n",
        "                if await rt.before(call.now, until) or True:\n",
        _LAPSE,
        "after its own deadline",
    ),
    Mutant(
        "a claim promoted too late is not given back",
        "claiming",
        "                at.left_behind = await _give_back(queue, call.claim)\n",
        "",
        _LAPSE,
        "nobody can ever hold the lock any more",
    ),
    Mutant(
        "news of an earlier claim are taken for those of this one",
        "claiming",
        "if granted is not None and granted.id == call.claim.id:",
        "if granted is not None:",
        Configuration("N=2, 1 eviction, looks", (_E, _E), evictions=1, looks=True),
        "another claim than its own",
    ),
    Mutant(
        "a time-out leaves the claim in line",
        "claiming",
        "        await _time_is_over(queue, call, answer.outage, at.in_line)\n",
        "        pass\n",
        _TIMED,
        "is left behind",
    ),
)
