"""The property of each port of `core.line`: random steps on it and on memory:// give the same answers and promotions.

Not the same stored form: fences only have to rise in the same order, and a waiter may be told to look more often.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import uuid4

from interlock.core.claims import SEPARATOR, USING, WRITER_UNITS, Claim, LockSpec
from interlock.core.queue import Granted, Queue
from interlock.stores._sync.step_queue import StepQueue
from interlock.stores.memory import Space

KINDS = ((1, 1), (1, 3), (2, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS))
LONG, SHORT = 60.0, 0.15  # seconds of lease
OVER = 0.3  # seconds after which a short lease, or a short record, has ended
LATEST = 10.0  # seconds that a promotion may take to be heard
NAMES = ("one", "two")


class _Heard:
    """What one claim is told, on one side."""

    def __init__(self) -> None:
        self.granted: list[int] = []
        self.looks = 0
        self.changed = threading.Event()

    def tell(self, message: Any = None) -> None:
        """As `Tells.tell`."""
        if isinstance(message, Granted):
            self.granted.append(message.slot)
        else:
            self.looks += 1
        self.changed.set()

    def close(self) -> None:
        """Nothing to give back."""


class _Side:
    """One of the two: queues, as of several processes, on one line; and what its claims heard."""

    def __init__(self, queues: Sequence[Queue]) -> None:
        self.queues = queues
        self.heard: dict[str, _Heard] = {}
        self.fences: dict[str, int] = {}


class Twins:
    """A queue beside memory://, on which the same is done.

    Args:
        queues: as of several processes, on the same place.
        seed: of the random steps.
    """

    def __init__(self, queues: Sequence[Queue], seed: int) -> None:
        space = Space()
        self._sides = (_Side([StepQueue(space, space.waiters)] * len(queues)), _Side(queues))
        self._random = random.Random(seed)
        self._space = uuid4().hex
        self._claims: list[tuple[Claim, int]] = []  # with the number of their process
        self._steps: list[Callable[[], None]] = [
            *[self.enter] * 6, *[self.again] * 2, *[self.leave] * 5, self.complete, self.kept, *[self.renew] * 2,
            self.adopt, self.evict, self.expire,
        ]  # fmt: skip
        self.done: list[str] = []  # what was done, for who reads a failure

    def run(self, steps: int) -> None:
        """Do so many steps, and then let all leave."""
        for _ in range(steps):
            self._random.choice(self._steps)()
            self._compare_what_was_heard()
            self.look()
        for claim, process in self._claims:
            self._both("leave", process, claim)
            self._compare_what_was_heard()
        self._compare_fences()

    # -- the steps ---------------------------------------------------------------------------------------

    def enter(self, ttl: float = LONG, once: bool = False, key: str = "") -> None:
        """A new claim asks."""
        units, capacity = self._random.choice(KINDS)
        once = once or self._random.random() < 0.3
        key = key or f"{self._space}{SEPARATOR}{self._random.choice(NAMES)}"
        claim = Claim(uuid4().hex, LockSpec(key, units, capacity, ttl, "läbel", once), "whö")
        process, wait = self._random.randrange(len(self._sides[0].queues)), self._random.random() < 0.8
        self._claims.append((claim, process))
        self._enter(claim, process, wait, False)

    def again(self) -> None:
        """A claim asks where it stands."""
        if self._claims:
            self._enter(*self._random.choice(self._claims[-8:]), True, True)

    def leave(self) -> None:
        """A claim leaves."""
        if self._claims:
            claim, process = self._random.choice(self._claims[-8:])
            self._both("leave", process, claim)

    def complete(self) -> None:
        """A claim leaves, and its run is done."""
        if self._claims:
            views = self._sides[0].queues[0].look(self._space + SEPARATOR)
            holders = {view.id for view in views if view.state == USING} or {self._claims[-1][0].id}
            claim, process = self._random.choice([each for each in self._claims if each[0].id in holders])
            short = self._random.random() < 0.7
            self._both("leave", process, claim, SHORT if short else LONG, uuid4().hex)
            if short:
                time.sleep(OVER)
            elif self._random.random() < 0.5:
                self._both("evict", process, claim.spec.key, None)
                self.enter(once=True, key=claim.spec.key)

    def kept(self) -> None:
        """Somebody asks what a completed run has left, and perhaps has it forgotten."""
        key, process = f"{self._space}{SEPARATOR}{self._random.choice(NAMES)}", self._random.randrange(2)
        self._both("kept", process % len(self._sides[0].queues), key)
        if self._random.random() < 0.3:
            self._both("forget", process % len(self._sides[0].queues), key)

    def renew(self) -> None:
        """Some leases are extended.  Before that dead ones are dropped: a port may leave that to other steps."""
        some = self._random.sample(self._claims, min(3, len(self._claims)))
        for key in {claim.spec.key for claim, _ in some}:
            self._both("evict", 0, key, "nobody")
        self._compare_what_was_heard()
        if some:
            self._both("renew", 0, [claim for claim, _ in some])

    def adopt(self) -> None:
        """A claim goes on under another id, in another process."""
        if self._claims:
            claim, _ = self._random.choice(self._claims[-8:])
            same = self._random.random() < 0.2
            new = claim._replace(id=claim.id if same else uuid4().hex)
            process = self._random.randrange(len(self._sides[0].queues))
            self._claims.append((new, process))
            for _ in range(2):  # the second time as if the reply was lost
                held = self._both("adopt", process, claim.spec.key, claim.id, new)
                self._note_fences(new.id, [each.fence for each in held] if held[0] is not None else [])

    def evict(self) -> None:
        """Somebody takes out one claim, or all."""
        if self._claims:
            claim, process = self._random.choice(self._claims[-8:])
            self._both("evict", process, claim.spec.key, claim.id if self._random.random() < 0.7 else None)

    def expire(self) -> None:
        """A claim enters with a short lease, which ends."""
        self.enter(SHORT)
        time.sleep(OVER)

    def look(self) -> None:
        """The lines are the same."""
        key = self._space + SEPARATOR + self._random.choice((*NAMES, ""))
        seen = []
        for side in self._sides:
            views = side.queues[0].look(key)
            seen.append([(v.name, v.id, v.state, v.units, v.capacity, v.thread, v.label) for v in views])
            assert all((view.fence is not None) == (view.state == USING) for view in views)
        assert seen[0] == seen[1], self._told("look", seen)

    # -- on both sides -----------------------------------------------------------------------------------

    def _enter(self, claim: Claim, process: int, wait: bool, again: bool) -> None:
        answers = []
        for side in self._sides:
            heard = side.heard.setdefault(claim.id, _Heard())
            answers.append(side.queues[process].enter(claim, heard if wait else None, wait, again))
        self._note_fences(claim.id, [each.fence for each in answers] if answers[0].fence else [])
        seen = [(each.state, each.slot) for each in answers]
        assert seen[0] == seen[1], self._told(f"enter {claim} wait={wait} again={again}", seen)

    def _both(self, name: str, process: int, *args: Any) -> list[Any]:
        answers = [getattr(side.queues[process], name)(*args) for side in self._sides]
        seen = [(each is not None, each and each.slot) if name == "adopt" else each for each in answers]
        assert seen[0] == seen[1], self._told(f"{name}{args}", seen)
        return answers

    def _told(self, what: str, seen: object) -> str:
        return "\n".join([*self.done[-30:], f"{what}: memory and the other: {seen}"])

    def _note_fences(self, id: str, fences: Sequence[int]) -> None:
        self.done.append(f"{id[:6]} {fences}")
        for side, fence in zip(self._sides, fences, strict=False):
            assert side.fences.setdefault(id, fence) == fence

    def _compare_what_was_heard(self) -> None:
        mine, other = self._sides
        for id, heard in mine.heard.items():
            until = time.monotonic() + LATEST
            while (there := other.heard[id]).granted != heard.granted or there.looks < heard.looks:
                there.changed.clear()
                assert time.monotonic() < until, self._told(f"{id} heard", (vars(heard), vars(there)))
                there.changed.wait(0.01)

    def _compare_fences(self) -> None:
        mine, other = (side.fences for side in self._sides)
        keys = {claim.id: claim.spec.key for claim, _ in self._claims}
        for key in set(keys.values()):
            ids = sorted((id for id in mine if keys[id] == key), key=mine.__getitem__)
            fences = [other[id] for id in ids]
            assert fences == sorted(fences), self._told("fences", fences)
