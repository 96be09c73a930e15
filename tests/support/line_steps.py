"""Random steps on a store and on the reference store: both must give the same answers, promotions and lines."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from interlock.core.claims import PENDING, SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.core.line import RENEWAL_OK, RENEWAL_WANTED
from interlock.core.queue import Granted
from interlock.testing.waiting import eventually

KINDS = [(1, 1), (1, 1), (1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
ALONE = [(1, 1), (1, 1), (1, 1), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
"""Kinds of which most holders have the lock for themselves."""
STEPS = [
    "enter", "enter", "enter", "enter", "try", "again", "leave", "leave", "leave", "finish", "renew", "adopt",
    "evict", "evict all", "pass",
]  # fmt: skip
PLAIN = ["enter", "enter", "enter", "try", "leave", "leave", "leave", "leave", "renew"]
"""The steps of short lines of exclusive locks, which compiled code performs."""
CROWDED = [*["enter"] * 12, "try", "again", "leave", "finish", "renew", "adopt", "evict all", "pass"]
"""The steps of long lines."""
SHRINKS = [*["enter"] * 8, "renew", "adopt", *["shrink"] * 4, *["leave"] * 8]
"""The steps of every third game, in which holders of the whole lock become smaller."""
SHARED = [[(1, WRITER_UNITS), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)], [(1, 3), (1, 3), (3, 3)]]
"""The kinds of these games."""
LONG, BRIEF, PASS = 600.0, 5.0, 6.0  # seconds
RECORD = 20.0  # seconds


class Side:
    """Two processes on one store.

    Args:
        queues: the queue of each process.
    """

    def __init__(self, queues: Sequence[Any]) -> None:
        self.queues = queues
        self.waiters: dict[str, Any] = {}
        self.grants: dict[str, int] = {}
        self.fences: dict[str, int] = {}
        self.over: set[str] = set()  # claims that are gone or have expired; a local hand-off may let them in

    def enter(self, process: int, claim: Claim, may_queue: bool, already_queued: bool) -> tuple[Any, ...]:
        """Enter a claim; return the answer without its fence, of which only the order must be the same."""
        queue = self.queues[process]
        if may_queue and claim.id not in self.waiters:
            self.waiters[claim.id] = queue.subscribe()
        answer = queue.enter(claim, self.waiters[claim.id] if may_queue else None, may_queue, already_queued)
        if answer.state == "using":
            self.saw(claim.id, answer.fence)
            self.grants[claim.id] = answer.slot  # a listener that hears late of a release may notify it too
        return answer.state, answer.slot if answer.state == "using" else 0

    def saw(self, id: str, fence: int) -> None:
        """Check that a claim always has the same fence."""
        assert self.fences.setdefault(id, fence) == fence

    def line(self, key: str) -> list[tuple[Any, ...]]:
        """Return the claims of a line; check that their fences rise."""
        views = self.queues[0].look(key)
        for view in views:
            if view.fence is not None:
                self.saw(view.id, view.fence)
        holders = [self.fences[view.id] for view in views if view.fence is not None]
        assert holders == sorted(holders)
        return [(view.id, view.state, view.units, view.capacity, view.thread, view.label) for view in views]

    def granted(self) -> dict[str, int]:
        """Return the claims that were told that they hold, with their slots; not those that are over."""
        for id, waiter in self.waiters.items():
            message = waiter.wait(0.0)
            if isinstance(message, Granted) and id not in self.over:
                assert message.id == id
                self.saw(id, message.fence)
                self.grants[id] = message.slot
        return dict(self.grants)

    def close(self) -> None:
        """Close all queues."""
        for waiter in self.waiters.values():
            waiter.close()
        for queue in self.queues:
            queue.close()


def waiting(line: Sequence[tuple[Any, ...]]) -> set[str]:
    """Return the ids of the waiting claims in a list of `Side.line`."""
    return {id for id, state, *_ in line if state == PENDING}


def play(
    seed: int, reference: Side, other: Side, pass_time: Callable[[float], object] | None, steps: int = 40,
    finish: bool = False, kinds: Sequence[tuple[int, int]] | None = None, renewals_promote: bool = True,
) -> None:  # fmt: skip
    """Perform random steps on both sides, and compare.

    Args:
        seed: the seed of the random steps.
        reference, other: the sides.
        pass_time: moves the clocks of both forward; None if they can't be moved: then no lease expires, and every
            second seed has plain steps only.
        steps: the number of steps.
        kinds: units and capacities to choose from; by default the seed decides.
        finish: True for long lines; a claim of nobody leaves after each step, which completes what was left to it.
        renewals_promote: False if a renewal on the other side promotes nobody, and counts a waiter that has its turn
            as one that waits.  A claim of nobody leaves after such a renewal, which promotes.
    """
    chance = random.Random(seed)
    key = f"game{SEPARATOR}of {seed} é\n'\\"
    known: dict[str, tuple[int, Claim]] = {}
    shrinks = seed % 6 in (3, 4)
    several = SHARED if shrinks else [KINDS, KINDS[:3], [(1, 3)], [(1, 1), (1, WRITER_UNITS)]]
    some_kinds = kinds or chance.choice(several)
    plain = pass_time is None and seed % 2 == 0
    for number in range(3 * steps if plain else steps):
        what = chance.choice(
            [*SHRINKS, *CROWDED[: 12 * finish]] if shrinks else PLAIN if plain else CROWDED if finish else STEPS
        )
        process, other_process = chance.sample((0, 1), 2)
        line = reference.line(key)
        first = line[0][0] if shrinks and line else ""
        if known and what not in ("enter", "try", "evict all", "pass"):
            process, claim = known[first if first in known else chance.choice(list(known))]
        else:
            units, capacity = (1, 1) if plain else chance.choice(some_kinds)
            ttl = chance.choice((LONG, BRIEF if finish else LONG, BRIEF if pass_time else LONG))
            once = chance.random() < (0.5 if finish else 0.2) and not plain
            spec = LockSpec(key, units, capacity, ttl, "a läbel", once)
            claim = Claim(f"{seed:06}x{number:025}", spec, "a thread")
        adopted = Claim(f"{seed:06}y{number:025}", claim.spec, "another")
        answers = []
        for side in (reference, other):
            queue = side.queues[process]
            if what in ("enter", "try"):
                answer: Any = side.enter(process, claim, what == "enter", False)
            elif what == "again":
                answer = side.enter(process, claim, True, True)
            elif what in ("leave", "finish"):
                answer = queue.leave(claim, RECORD if what == "finish" else 0.0)
            elif what == "renew":
                answer = queue.renew([claim])
            elif what == "adopt":
                held = side.queues[other_process].adopt(key, claim.id, adopted)
                answer = held and held.slot
                if held is not None:
                    side.saw(adopted.id, held.fence)
                    side.over.add(claim.id)  # a store may notify it, if this step has promoted it
            elif what == "shrink":  # `known` keeps its old units, which must not come back
                held = queue.adopt(key, claim.id, claim._replace(spec=claim.spec._replace(units=1)))
                answer = held and held.slot
                if held is not None:
                    side.saw(claim.id, held.fence)
            elif what == "pass":
                answer = None
                side.over.update(id for id, (_, each) in known.items() if each.spec.ttl == BRIEF and pass_time)
            elif number % 3 == 0:
                answer = queue.evict(key, None if what == "evict all" else claim.id)
                side.over.update(known if what == "evict all" else [claim.id])
            else:
                answer = 0
            answers.append(answer)
        if what == "pass" and pass_time is not None:
            pass_time(PASS)
        late = what == "renew" and not renewals_promote
        for side in (reference, other) if finish or late else ():
            side.queues[process].leave(Claim(f"{seed:06}z{number:025}", claim.spec))
        told = f"seed {seed}, step {number}: {what} {claim.id} {claim.spec[1:3]}"
        lines = reference.line(key), other.line(key)
        if late and answers == [[RENEWAL_OK], [RENEWAL_WANTED]]:
            assert waiting(line) - waiting(lines[0]), told
        else:
            assert answers[0] == answers[1], (told, answers)
        if what == "adopt" and answers[0] is not None:
            known.pop(claim.id)  # the holder has handed it over
            known[adopted.id] = other_process, adopted
        elif what == "enter" and answers[0][0] in ("using", "pending"):
            known[claim.id] = process, claim
        elif what == "leave" or (what == "again" and answers[0][0] == "gone"):
            known.pop(claim.id, None)
        assert lines[0] == lines[1], (told, *lines)
        wanted = reference.granted()
        eventually(lambda wanted=wanted: set(other.granted()) >= set(wanted))  # type: ignore[misc]
        assert other.granted() == wanted, (told, other.granted(), wanted)
    assert sorted(other.fences, key=other.fences.__getitem__) == sorted(
        reference.fences, key=reference.fences.__getitem__
    )
