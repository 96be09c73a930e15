"""The table of mutants: every safeguard of the protocol, of its callers and of its stores."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from interlock.core import line
from model_checker.changes import Change, Mutant
from model_checker.pending.options import EXCLUSIVE, Fence, Options, Update, semaphore

PENDING = "interlock.core._async.pending"
CALLER = "model_checker.caller"
LINE = "interlock.core.line"
_pending = partial(Change, PENDING)
_claiming = partial(Change, "interlock.core._async.acquire")
_line = partial(Change, LINE)
_caller = partial(Change, CALLER)

PLAIN = Options()
THREE = Options((EXCLUSIVE,) * 3)
LEASES = Options(leases=True, heartbeats=True)
FENCES = Options(leases=True, fence=Fence.ISSUED, attempts=2, lapses=2)
LOSSY = Options(leases=True, lost=1)

FIRST = "first = not before or (together and fits(mine.units, mine.capacity, using + before))"
JUNK = "junk = next((r.id for r in records if r.expired and r.id != me), None)"

UNKNOWN = "        except UnknownOutcome:\n            result = GIVEN_UP"
ANSWERED = "            await effect(Answered(bool(answers[0])))\n"
GIVEN_UP = "                call.left_behind = await _give_back(queue, call.claim)\n"
NO_MORE = '            if answer.state == "using" or'
REFUSED = "            return REFUSED"
COUNTED = "                until = call.sent + call.claim.spec.ttl\n"
DUMB = Update.THERE


IN_LINE = Options(ordered=True, steps=line, one_using=True)
LEASED = replace(IN_LINE, leases=True)
FENCED = replace(LEASED, fence=Fence.ISSUED, attempts=2, lapses=2)


HARMLESS: tuple[Mutant, ...] = (
    Mutant(
        "a claim does not notice that it has expired until the store refuses it",
        "",
        LEASES,
        _pending("if mine is None or mine.expired:", "if mine is None:"),
    ),
    Mutant(
        "a waiter does not heed a refused renewal",
        "",
        LEASES,
        _pending("            if not renewed[0]:\n                return CLAIM_GONE", "            pass"),
    ),
    Mutant("nobody reaps", "", Options(leases=True, crashes=1), _pending(JUNK, "junk = None")),
)
"""Changes that are not caught, because another safeguard has the same effect."""

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "looks before it claims",
        "two holders",
        PLAIN,
        _pending(
            "await records.create(claim)  # 1. claim first ...",
            """line = await records.list(claim.spec.key)
            await records.create(claim)
            if all(r.expired or r.state == QUEUED for r in line):
                fence = await records.promote(claim)
                if fence is not None:
                    return EnterResult("using", fence)""",
        ),
    ),
    Mutant(
        "ignores the others' pendings",
        "two holders",
        PLAIN,
        _pending("raised = [(r.units, r.capacity) for r in others if r.state == PENDING]", "raised = []"),
    ),
    Mutant(
        "ignores the others' usings",
        "two holders",
        PLAIN,
        _pending("using = [(r.units, r.capacity) for r in others if r.state == USING]", "using = []"),
    ),
    Mutant(
        "no second look after raising the flag",
        "two holders",
        THREE,
        _pending(
            """                raised = await records.update(claim, PENDING)  # raise the flag, THEN look again
""",
            """                raised = await records.update(claim, PENDING)
                fence = await records.promote(claim)
                return CLAIM_GONE if fence is None else EnterResult("using", fence)
""",
        ),
    ),
    Mutant(
        "a pure ticket queue, keys visible out of order",
        "two holders",
        PLAIN,
        _pending(
            "free = fits(mine.units, mine.capacity, using + raised)", "free = all(r.key > mine.key for r in others)"
        ),
    ),
    Mutant("every caller gives way", "livelock", PLAIN, _pending(FIRST, "first = free")),
    Mutant("no caller gives way", "stuck", PLAIN, _pending(FIRST, "first = True")),
    Mutant(
        "steps aside without lowering its flag",
        "stuck",
        PLAIN,
        _pending('if verdict == "give way" and up:', "if False:"),
    ),
    Mutant(
        "never raises its flag again",
        "stuck",
        PLAIN,
        _pending('if verdict != "give way" and not up:', "if False:"),
    ),
    Mutant(
        "promotes while its flag is down",
        "livelock",
        THREE,
        _pending('if verdict == "enter" and up:', 'if verdict == "enter":'),
    ),
    Mutant(
        "counted units pass together, like readers",
        "starvation",
        Options(semaphore(3, 2), ordered=True),
        _pending(
            "together = mine.capacity == WRITER_UNITS and all(capacity == WRITER_UNITS for _, capacity in before)",
            "together = True",
        ),
        fair=True,
    ),
    Mutant(
        "a try gives up when a neighbour's flag is up",
        "nobody",
        Options(wait=False, attempts=1),
        _pending('if not wait and verdict != "neighbour":', "if not wait:"),
    ),
    Mutant(
        "a refused promotion is taken as granted",
        "fence",
        Options(leases=True, fence=Fence.ISSUED, attempts=2, lapses=2, bad_clock=True, exclusion=False),
        _pending(
            'return CLAIM_GONE if granted is None else EnterResult("using", granted)',
            'return EnterResult("using", granted or 1)',
        ),
    ),
    Mutant(
        "a promotion of unknown outcome is taken as granted",
        "two holders",
        LOSSY,
        _pending(UNKNOWN, UNKNOWN.replace("GIVEN_UP", 'EnterResult("using", 1)')),
    ),
    Mutant(
        "a claim with an unknown outcome is not given up",
        "two holders",
        replace(LOSSY, lapses=1, attempts=1),
        _pending(UNKNOWN, UNKNOWN.replace("result = GIVEN_UP", "raise")),
    ),
    Mutant(
        "an abandoned claim is not deleted",
        "stuck",
        Options(lost=1),
        _pending('        if result.state == "gone":\n            await self._forget(claim)', "        pass"),
    ),
    Mutant(
        "no check of the own deadline after the promotion",
        "fence",
        Options(leases=True, fence=Fence.ISSUED, attempts=2, lapses=2, stepwise=True),
        _claiming("if await rt.before(call.now, until):", "if await rt.before(call.now, until) or True:"),
    ),
    Mutant(
        "the lease is counted from the answer, not from before the request",
        "two holders",
        LEASES,
        _claiming(COUNTED, f"                call.sent = await rt.time_by(call.now)\n{COUNTED}"),
    ),
    Mutant(
        "a renewal revives an expired record, the watchdog re-arms a passed deadline",
        "two holders",
        Options(leases=True, heartbeats=True, renewal=Update.THERE),
    ),
    Mutant(
        "the watchdog takes a refused renewal as done",
        "two holders",
        LEASES,
        _caller(
            f"{ANSWERED}            if not answers[0]:",
            "            await effect(Answered(True))\n            if False:",
        ),
    ),
    Mutant(
        "the watchdog counts the lease from the answer",
        "two holders",
        LEASES,
        _caller(ANSWERED, f"            await effect(Renewing())\n{ANSWERED}"),
    ),
    Mutant(
        "an unexpired record is reaped",
        "two holders",
        Options(leases=True, reaps_live=True),
        _pending(JUNK, "junk = next((r.id for r in records if r.id != me), None)"),
    ),
    Mutant(
        "a reap does not check whether the record is still expired, and renewals revive",
        "two holders",
        replace(
            Options((EXCLUSIVE,) * 3, ordered=True, leases=True, attempts=1, lapses=1),
            reaps_live=True,
            renewal=DUMB,
            update=DUMB,
        ),
    ),
    Mutant(
        "the store's clock is wrong, and updates do not check the clock",
        "two records",
        Options(leases=True, bad_clock=True, exclusion=False, one_using=True, update=Update.THERE),
    ),
    Mutant(
        "a record expires while its owner's lease goes on",
        "two holders",
        Options(leases=True, bad_clock=True),
    ),
    Mutant("release by name instead of by id", "two holders", Options(leases=True, by_name=True)),
    Mutant("the id of a record is used again", "two holders", Options(leases=True, lost=1, same_id=True)),
    Mutant(
        "the id is kept after the claim was given up",
        "two holders",
        Options(leases=True, lost=2, lapses=1),
        _claiming("call.claim = call.claim._replace(id=rt.fresh_id())", "rt.fresh_id()"),
    ),
    Mutant(
        "a time-out forgets to leave",
        "left behind",
        Options(timeouts=True),
        _claiming("        await _time_is_over(queue, call, answer.outage, call.in_line)\n", "        pass\n"),
    ),
    Mutant(
        "a refused try leaves its record",
        "left behind",
        Options(wait=False, attempts=1),
        _pending(f"            await records.delete(claim)\n{REFUSED}", REFUSED),
    ),
    Mutant(
        "an interrupted call forgets to leave",
        "left behind",
        Options(cancels=None),
        _caller("            await withdraw(queue, claim)\n        elif", "            pass\n        elif"),
    ),
    Mutant(
        "an interrupted call leaves by its first id",
        "left behind",
        Options(leases=True, cancels=None),
        _caller("claim = call.claim", "claim = Claim(first, spec)"),
    ),
    Mutant(
        "a promotion that came too late is not given up",
        "left behind",
        LEASES,
        _claiming(GIVEN_UP + NO_MORE, NO_MORE),
    ),
    Mutant(
        "on a line: a new claim overtakes the waiters",
        "two records",
        replace(IN_LINE, spec=((1, 2), (2, 2), (1, 2))),
        _line(
            "[(each.units, each.capacity) for each in now.places]",
            "[(each.units, each.capacity) for each in now.places if each.state == USING]",
        ),
    ),
    Mutant(
        "on a line: a release removes the other claims too",
        "two holders",
        replace(IN_LINE, spec=semaphore(3, 2)),
        _line(
            "if len(places) == 1 and places[0].id == id and not keep_for:", "if places[0].id == id and not keep_for:"
        ),
    ),
    Mutant(
        "on a line: expired claims stay in the line",
        "stuck",
        replace(LEASED, crashes=1),
        _line("if place.until <= now or (dead and place.liveness_token in dead):", "if False:"),
    ),
    Mutant(
        "on a line: settling the line promotes no claim",
        "livelock",
        IN_LINE,
        _line("    if promoted:\n", "    if False:\n"),
    ),
    Mutant(
        "on a line: fences are the time of day",
        "fence",
        FENCED,
        _line("fence = stamp if stamp > max_fence else max_fence + 1", "fence = stamp"),
    ),
    Mutant(
        "on a line: no check of the own deadline after the hand-over",
        "fence",
        FENCED,
        _claiming("if await rt.before(call.now, until):", "if True:"),
    ),
    Mutant(
        "on a line: a message to an earlier claim is taken for a message to the current claim",
        "two holders",
        LEASED,
        _claiming("if granted is not None and granted.id == call.claim.id:", "if granted is not None:"),
    ),
    Mutant(
        "on a line: an id enters a second time after a lost answer",
        "two holders",
        replace(LEASED, lost=1),
        _claiming("call.may_queue, call.in_line or call.uncertain)", "call.may_queue, call.in_line)"),
    ),
    Mutant(
        "on a line: a claim that was granted too late stays in the line",
        "left behind",
        replace(LEASED, timeouts=True),
        _claiming(GIVEN_UP + NO_MORE, NO_MORE),
    ),
)
