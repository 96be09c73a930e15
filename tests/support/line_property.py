"""Random steps on two queues, a store and the reference, which must give the same answers, and tell the same."""

import random
from collections.abc import Callable
from typing import Any

from interlock.core.claims import SEPARATOR, WRITER_UNITS, Claim, LockSpec
from interlock.core.queue import Granted

KEYS = [f"p{SEPARATOR}{name}" for name in ("a", "b é\n'\\")]
KINDS = [(1, 1), (1, 3), (2, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
SHORT, LONG = 10.0, 100_000.0  # seconds of lease; a move of the clock ends the short ones
MOVE = 20.0  # seconds
NAMES = ("enter", "enter", "enter", "again", "leave", "leave", "renew", "adopt", "evict", "move", "look", "done")


class Game:
    """One game on both.

    Args:
        queues: the two.
        rng: what decides.
        move: lets so many seconds pass, for both.
    """

    def __init__(self, queues: tuple[Any, Any], rng: random.Random, move: Callable[[float], object]) -> None:
        self.queues = queues
        self.rng = rng
        self.pass_time = move
        self.claims: list[Claim] = []
        self.waiters: dict[str, list[Any]] = {}
        self.fences: list[dict[str, int]] = [{}, {}]

    def play(self, steps: int) -> None:
        """Take so many steps."""
        for number in range(steps):
            name = self.rng.choice(NAMES)
            seen = [self.step(name, side) for side in (0, 1)]
            assert seen[0] == seen[1], (number, name, seen)
            self.after(name)
            told = [self.told(side) for side in (0, 1)]
            assert told[0] == told[1], (number, name)
        for key in KEYS:  # of two names, nothing is promised
            ids = {claim.id for claim in self.claims if claim.spec.key == key}
            orders = [sorted(ids & each.keys(), key=each.__getitem__) for each in self.fences]
            assert orders[0] == orders[1]

    def step(self, name: str, side: int) -> Any:
        """Take a step on one side; both take the same."""
        queue, state = self.queues[side], self.rng.getstate()
        answer = getattr(self, name)(queue, side)
        if side == 0:
            self.rng.setstate(state)  # the other side decides the same
        return answer

    def after(self, name: str) -> None:
        """Note what both have done."""
        if name == "move":
            self.pass_time(MOVE)

    def fresh(self) -> Claim:
        units, capacity = self.rng.choice(KINDS)
        ttl = self.rng.choice((SHORT, LONG, LONG))
        spec = LockSpec(self.rng.choice(KEYS), units, capacity, ttl, "a label", self.rng.random() < 0.1)
        return Claim(f"c{self.rng.randrange(10**9)}", spec, "who - é")

    def known(self) -> Claim:
        return self.rng.choice(self.claims) if self.claims else self.fresh()

    def answered(self, claim: Claim, answer: Any, side: int) -> Any:
        if answer.fence and answer.state == "using":
            self.fences[side][claim.id] = answer.fence
        return answer.state, bool(answer.fence), answer.slot

    def enter(self, queue: Any, side: int) -> Any:
        claim, wait = self.fresh(), self.rng.random() < 0.8
        waits = wait and self.rng.random() < 0.9
        if side == 1:
            self.claims.append(claim)
        waiter = self.waiter(claim, side, queue) if waits else None
        return self.answered(claim, queue.enter(claim, waiter, wait, False), side)

    def waiter(self, claim: Claim, side: int, queue: Any) -> Any:
        waiters = self.waiters.setdefault(claim.id, [None, None])
        if waiters[side] is None:
            waiters[side] = queue.subscribe()
        return waiters[side]

    def again(self, queue: Any, side: int) -> Any:
        claim = self.known()
        return self.answered(claim, queue.enter(claim, self.waiter(claim, side, queue), True, True), side)

    def leave(self, queue: Any, side: int) -> Any:
        return queue.leave(self.known())

    def done(self, queue: Any, side: int) -> Any:
        return queue.leave(self.known(), self.rng.choice((SHORT, LONG)))

    def renew(self, queue: Any, side: int) -> Any:
        return queue.renew([self.known() for _ in range(self.rng.randrange(1, 6))])

    def adopt(self, queue: Any, side: int) -> Any:
        old, new = self.known(), self.fresh()
        new = new._replace(spec=old.spec)
        held = queue.adopt(old.spec.key, old.id, new)
        if side == 1 and held is not None:
            self.claims.append(new)
        return held is not None and held.slot

    def evict(self, queue: Any, side: int) -> Any:
        claim = self.known()
        return queue.evict(claim.spec.key, claim.id if self.rng.random() < 0.8 else None)

    def move(self, queue: Any, side: int) -> Any:
        return None

    def look(self, queue: Any, side: int) -> Any:
        key = self.rng.choice([*KEYS, "p" + SEPARATOR])
        return [(view.name, view.id, view.state, view.units, view.capacity, view.label, view.thread)
                for view in queue.look(key)]  # fmt: skip

    def told(self, side: int) -> dict[str, tuple[bool, int]]:
        """Return what each waiter was told since."""
        heard = {}
        for id, waiters in self.waiters.items():
            message = waiters[side].wait(0.0) if waiters[side] is not None else None
            if isinstance(message, Granted):
                self.fences[side][id] = message.fence
                heard[id] = (True, message.slot)
        return heard
