"""Mutants with one safeguard removed: the checker must catch each, or the safeguard would not be needed.

A mutant is a change in the text of a production module, which is then executed as a fresh module.
"""

from __future__ import annotations

from functools import partial

from model_checker.changes import Change, Mutant
from model_checker.files.configurations import (
    EXCLUSIVE,
    READER,
    TIMED,
    WRITER,
    Configuration,
    permits,
)

_E, _X, _S = EXCLUSIVE, WRITER, READER
_PLAIN = Configuration("N=2", (_E, _E))
_KILL = Configuration("N=2, 1 kill", (_E, _E), kills=1)
_SHARED = Configuration("X S S, 1 kill", (_X, _S, _S), kills=1)
_LAPSE = Configuration("N=2, 1 lapse", (_E, _E), lapses=1, looks=True)

_line = partial(Change, "interlock.core.line")
_plan = partial(Change, "interlock.stores.files.write_plan")
_claiming = partial(Change, "interlock.core._async.acquire")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a waiter's slot is promoted before the slots of leaving claims are freed",
        "a fence that is not its own",
        Configuration("N=3, 1 kill, 1 eviction", (_E, _E, _E), kills=1, evictions=1),
        _plan(
            """        *(Write(row, None) for row in going),
        *(Tell(place) for place in told if place.id not in me),
        *writes,
""",
            """        *(Tell(place) for place in told if place.id not in me),
        *writes,
        *(Write(row, None) for row in going),
""",
        ),
    ),
    Mutant(
        "a waiter's slot is written before the waiter is notified",
        "and is not notified",
        _SHARED,
        _plan(
            """        *(Tell(place) for place in told if place.id not in me),
        *writes,
""",
            """        *writes,
        *(Tell(place) for place in told if place.id not in me),
""",
        ),
    ),
    Mutant(
        "the first in line is notified first",
        "nothing wakes it",
        _SHARED,
        _plan("told.sort(key=BY_FENCE, reverse=True)", "told.sort(key=BY_FENCE)"),
    ),
    Mutant(
        "a promoted waiter is not notified",
        "and is not notified",
        _PLAIN,
        _plan("        *(Tell(place) for place in told if place.id not in me),\n", ""),
    ),
    Mutant(
        "a waiter that must watch other claims is not notified",
        "nothing wakes it",
        Configuration("N=3, 1 kill, 1 cancelled", (_E, _E, _E), kills=1, cancels=1),
        _plan("[*step.promoted, *_unaware(before, step)]", "[*step.promoted]"),
    ),
    Mutant(
        "the first in line watches no claim",
        "nothing wakes it",
        _KILL,
        _plan("return {place.liveness_token for place in places[:at]}", "return set()"),
    ),
    Mutant(
        "the first in line watches one of several holders",
        "nothing wakes it",
        Configuration("semaphore of 2, N=3, 2 kills", (permits(1, 2),) * 3, kills=2),
        _plan(
            "return {place.liveness_token for place in places[:at]}",
            "return {place.liveness_token for place in places[:at][-1:]}",
        ),
    ),
    Mutant(
        "a waiter does not watch the claim before it",
        "nothing wakes it",
        Configuration("N=3, 2 kills", (_E, _E, _E), kills=2),
        _plan("return {places[at - 1].liveness_token}", "return set()"),
    ),
    Mutant(
        "a fence follows the fences in line only, not the fences of free slots",
        "is not higher than all earlier fences",
        Configuration("N=3", (_E, _E, _E)),
        _plan("top_of(slots), done)", "max((place.fence for place in places), default=0), done)"),
    ),
    Mutant(
        "dead processes keep their places",
        "though its process is dead",
        _KILL,
        _line("each.until > now and each.liveness_token not in dead", "each.until > now"),
    ),
    Mutant(
        "ended leases keep their places",
        "is revived",
        _LAPSE,
        _line("each.until > now and each.liveness_token not in dead", "each.liveness_token not in dead"),
    ),
    Mutant(
        "a renewal revives a lease that has ended",
        "is revived",
        Configuration("N=2, 2 lapses, renewals", (_E, _E), lapses=2, renews=True, looks=True),
        _line("    now = line if settled.line is None else settled.line\n    wanted", "    now = line\n    wanted"),
    ),
    Mutant(
        "leave frees any holder, not only its own claim",
        "hold the lock at the same time",
        Configuration("N=3, 1 lapse", (_E, _E, _E), lapses=1, heartbeats=True),
        _line(
            "    mine = next((each for each in now.places if each.id == id), None)\n",
            "    mine = next(iter(now.places), None)\n",
        ),
    ),
    Mutant(
        "a new claim overtakes the waiters",
        "overtakes",
        Configuration("X S S", (_X, _S, _S)),
        _line(
            "[(each.units, each.capacity) for each in now.places]",
            "[(each.units, each.capacity) for each in now.places if each.state == USING]",
        ),
    ),
    Mutant(
        "a leaving claim promotes no waiter",
        "nothing wakes it",
        _PLAIN,
        _line("    after = settle(now, clock)\n    promoted", "    after = StepResult(None, None)\n    promoted"),
    ),
    Mutant(
        "an evicted waiter is not notified",
        "waits without a place in line",
        Configuration("N=2, 1 eviction", (_E, _E), evictions=1),
        _line(
            "    evicted_waiters = tuple(place for place in out if place.state == PENDING)\n",
            "    evicted_waiters = ()\n",
        ),
    ),
    Mutant(
        "no deadline check after the promotion",
        "after its own deadline",
        _LAPSE,
        _claiming(
            "                if await rt.before(call.now, until):\n",
            "                if await rt.before(call.now, until) or True:\n",
        ),
    ),
    Mutant(
        "a claim promoted too late is not released",
        "stuck",
        _LAPSE,
        _claiming("                call.left_behind = await _give_back(queue, call.claim)\n", ""),
    ),
    Mutant(
        "a message to an earlier claim is taken for a message to the current claim",
        "another claim than its own",
        Configuration("N=2, 1 eviction, looks", (_E, _E), evictions=1, looks=True),
        _claiming("if granted is not None and granted.id == call.claim.id:", "if granted is not None:"),
    ),
    Mutant(
        "a time-out leaves the claim in line",
        "is left behind",
        Configuration("waits and times out", (_E, TIMED)),
        _claiming("        await _time_is_over(queue, call, answer.outage, call.in_line)\n", "        pass\n"),
    ),
)
