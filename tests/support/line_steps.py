"""Random steps on two queues, of which one is the reference: the same answers, the same promotions, the same line."""

import random
from collections.abc import Callable, Sequence
from typing import Any

from interlock.core.claims import SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.testing.waiting import eventually

KINDS = [(1, 1), (1, 1), (1, 1), (1, 3), (2, 3), (3, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
STEPS = [
    "enter", "enter", "enter", "enter", "try", "again", "leave", "leave", "leave", "finish", "renew", "adopt",
    "evict", "evict all", "pass",
]  # fmt: skip
LONG, BRIEF, PASS = 600.0, 5.0, 6.0  # seconds
RECORD = 20.0  # seconds


class Told:
    """Keeps what a claim is told."""

    def __init__(self) -> None:
        self.grant: Any = None
        self.looks = 0

    def tell(self, message: Any = None) -> None:
        """As `Tells.tell`."""
        if message is None:
            self.looks += 1
        else:
            self.grant = message


class Side:
    """Two processes on one store.

    Args:
        queues: of each.
    """

    def __init__(self, queues: Sequence[Any]) -> None:
        self.queues = queues
        self.told: dict[str, Told] = {}
        self.fences: dict[str, int] = {}
        self.doubted: set[str] = set()
        for queue in queues:
            queue.set_doubt(self.doubted.add)

    def enter(self, process: int, claim: Claim, wait: bool, again: bool) -> tuple[Any, ...]:
        """Enter; return the answer without its fence, which only has to be in order."""
        told = self.told.setdefault(claim.id, Told())
        answer = self.queues[process].enter(claim, told if wait else None, wait, again)
        if answer.state == "using":
            self.saw(claim.id, answer.fence)
        return answer.state, answer.slot if answer.state == "using" else 0

    def saw(self, id: str, fence: int) -> None:
        """A claim has one fence for good, and later ones have higher ones."""
        assert self.fences.setdefault(id, fence) == fence

    def line(self, key: str) -> list[tuple[Any, ...]]:
        """Return the line as people see it."""
        views = self.queues[0].look(key)
        for view in views:
            if view.fence is not None:
                self.saw(view.id, view.fence)
        holders = [self.fences[view.id] for view in views if view.fence is not None]
        assert holders == sorted(holders)
        return [(view.id, view.state, view.units, view.capacity, view.thread, view.label) for view in views]

    def granted(self) -> dict[str, int]:
        """Return who was told that it holds the lock, and its slot; but for those by a promise that was void."""
        granted = {}
        for id, told in self.told.items():
            if told.grant is not None and id not in self.doubted:
                assert told.grant.id == id
                self.saw(id, told.grant.fence)
                granted[id] = told.grant.slot
        return granted


def play(seed: int, reference: Side, other: Side, pass_time: Callable[[float], object], steps: int = 40) -> None:
    """Play random steps on both.

    Args:
        seed: of the game.
        reference, other: the sides.
        pass_time: moves the clocks of both forward.
        steps: so many.
    """
    chance = random.Random(seed)
    key = f"game{SEPARATOR}of {seed}"
    known: dict[str, tuple[int, Claim]] = {}
    some_kinds = chance.choice([KINDS, KINDS[:3], [(1, 3)], [(1, 1), (1, WRITER_UNITS)]])
    for number in range(steps):
        what = chance.choice(STEPS)
        process, other_process = chance.sample((0, 1), 2)
        if known and what not in ("enter", "try", "evict all", "pass"):
            process, claim = known[chance.choice(list(known))]
        else:
            units, capacity = chance.choice(some_kinds)
            spec = LockSpec(
                key, units, capacity, chance.choice((LONG, LONG, BRIEF)), "a label", chance.random() < 0.2
            )
            claim = Claim(f"{seed}x{number}", spec, "a thread")
        adopted = Claim(f"{seed}y{number}", claim.spec, "another")
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
            elif what == "pass":
                answer = None
            elif number % 3 == 0:
                answer = queue.evict(key, None if what == "evict all" else claim.id)
            answers.append(answer)
        if what == "pass":
            pass_time(PASS)
        told = f"seed {seed}, step {number}: {what} {claim.id} {claim.spec[1:3]}"
        assert answers[0] == answers[1], (told, answers)
        if what == "adopt" and answers[0] is not None:
            known.pop(claim.id)  # its holder gave it away
            known[adopted.id] = other_process, adopted
        elif what == "enter" and answers[0][0] in ("using", "pending"):
            known[claim.id] = process, claim
        elif what == "leave" or (what == "again" and answers[0][0] == "gone"):
            known.pop(claim.id, None)
        lines = reference.line(key), other.line(key)
        assert lines[0] == lines[1], (told, *lines)
        wanted = reference.granted()
        eventually(lambda wanted=wanted: set(other.granted()) >= set(wanted))  # type: ignore[misc]
        assert other.granted() == wanted, (told, other.granted(), wanted)
