"""Files give the answers and the promotions that `core/line.py` gives: random steps, beside those on memory://.

Two connections by two paths are as two processes: what one promotes for the other goes through a named pipe.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import interlock.stores.files._sync.queue as files_queue
from interlock.core.claims import WRITER_UNITS, Claim, LockSpec
from interlock.core.queue import Granted
from interlock.runtime import clock
from interlock.runtime._threads import fresh_id, sleep
from interlock.stores.files import FileStore, slots
from interlock.stores.files.linefile import MOST_IDLE
from interlock.stores.memory import MemoryStore, Space

KINDS = [(1, 1), (1, 1), (1, 3), (2, 3), (1, WRITER_UNITS), (WRITER_UNITS, WRITER_UNITS)]
SHORT, LONG = 0.15, 30.0  # seconds
UNSURE = 0.08  # seconds before the end of a lease in which two stores might differ
NAME = "\0book"


class Stalled(Exception):
    """The machine stood still at the end of a lease: the two stores may have answered before and after it."""


class Heard:
    """A waiter that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Granted | None] = []

    def tell(self, message: Granted | None = None) -> None:
        self.told.append(message)

    def close(self) -> None:
        pass


class Pair:
    """The same claims on both stores; fences are compared by their order.

    Args:
        folders: two paths of one folder.
        seed: of the steps.
    """

    def __init__(self, folders: list[Path], seed: int) -> None:
        self.random = random.Random(seed)
        self.simple = seed % 2 == 0  # short lines of exclusive locks, as compiled code takes them
        self.files = [FileStore.from_url(urlsplit(folder.as_uri())).queue() for folder in folders]
        self.memory = MemoryStore(Space()).queue()
        self.claims: dict[str, tuple[Claim, int]] = {}
        self.waiters: dict[str, tuple[Any, Heard]] = {}
        self.fences: list[tuple[int, int]] = []
        self.granted: dict[str, tuple[int, int]] = {}
        self.ends: list[tuple[float, float]] = []
        self.began = 0.0
        self.steps: list[str] = []

    def both(self, what: str, files: Callable[[], Any], memory: Callable[[], Any]) -> Any:
        """Do a step on both, away from the ends of leases; return the answer."""
        soon = [last for first, last in self.ends if first < clock.now() + UNSURE and last > clock.now() - 0.01]
        if soon:
            sleep(max(soon) - clock.now() + 0.02)
        self.steps.append(what)
        self.began = clock.now()
        ours, theirs = files(), memory()
        views = [self.views(queue) for queue in (*self.files, self.memory)]
        if any(first < clock.now() and last > self.began for first, last in self.ends):
            raise Stalled
        assert self.shown(ours) == self.shown(theirs), self.steps
        assert views[0] == views[1] == views[2], self.steps
        self.compare()
        return ours, theirs

    def end(self, seconds: float) -> tuple[float, float]:
        """Return between which moments something ends that the last step began on both stores."""
        return self.began + seconds, clock.now() + seconds

    def views(self, queue: Any) -> Any:
        return [(view.id, view.state, view.units, view.capacity, view.label) for view in queue.look(NAME)]

    def shown(self, answer: Any) -> Any:
        if hasattr(answer, "state"):
            return answer.state, answer.slot, answer.fence > 0
        if hasattr(answer, "claim"):
            return answer.claim.id, answer.slot
        return answer

    def fence(self, id: str, ours: int, theirs: int) -> None:
        assert self.granted.setdefault(id, (ours, theirs)) == (ours, theirs), self.steps
        self.fences = sorted({*self.fences, (ours, theirs)})
        assert [fence for _, fence in self.fences] == sorted(fence for _, fence in self.fences)

    def compare(self) -> None:
        """Compare who was told what."""
        for id, (ours, theirs) in list(self.waiters.items()):
            told, heard = ours.wait(0.0), [each for each in theirs.told if each is not None]
            if told is not None or heard:
                assert told is not None, (self.steps, id, heard)
                assert heard, (self.steps, id, told)
                assert (told.id, told.slot) == (heard[-1].id, heard[-1].slot), self.steps
                self.fence(told.id, told.fence, heard[-1].fence)
                theirs.told.clear()

    # -- steps ------------------------------------------------------------------------------------------

    def enter(self) -> None:
        process = self.random.randrange(2)
        units, capacity = (1, 1) if self.simple else self.random.choice(KINDS)
        ttl = SHORT if self.random.random() < 0.2 and not self.simple else LONG
        once = self.random.random() < 0.1 and not self.simple
        claim = Claim(fresh_id(), LockSpec(NAME, units, capacity, ttl, self.random.choice(["", "shelf"]), once), "me")
        self.claims[claim.id] = claim, process
        self.again(claim.id, subscribe=self.random.random() < 0.7, again=False)

    def again(self, id: str, subscribe: bool = True, again: bool = True) -> None:
        claim, process = self.claims[id]
        queue = self.files[process]
        if subscribe and id not in self.waiters:
            self.waiters[id] = queue.subscribe(), Heard()
        ours, theirs = self.waiters.get(id, (None, None)) if subscribe else (None, None)
        wait = subscribe or self.random.random() < 0.5
        one, other = self.both(
            f"enter {claim} again={again} wait={wait} subscribed={subscribe}",
            lambda: queue.enter(claim, ours, wait, again),
            lambda: self.memory.enter(claim, theirs, wait, again),
        )
        if claim.spec.ttl == SHORT:
            self.ends.append(self.end(SHORT))
        if one.state == "using":
            self.fence(id, one.fence, other.fence)

    def leave(self, id: str) -> None:
        claim, process = self.claims[id]
        done = self.random.choice([0.0, 0.0, 0.0, 0.05]) if id in self.granted and not self.simple else 0.0
        self.both(
            f"leave {id} done={done}",
            lambda: self.files[process].leave(claim, done),
            lambda: self.memory.leave(claim, done),
        )
        self.ends += [self.end(done)] if done else []
        del self.claims[id]
        for waiter, _ in filter(None, [self.waiters.pop(id, None)]):
            waiter.close()

    def renew(self) -> None:
        claims = [claim for claim, _ in self.claims.values() if self.random.random() < 0.5]
        self.both(f"renew {claims}", lambda: self.files[0].renew(claims), lambda: self.memory.renew(claims))
        self.ends += [self.end(SHORT) for claim in claims if claim.spec.ttl == SHORT]

    def adopt(self, id: str) -> None:
        claim, _ = self.claims[id]
        new = claim._replace(id=fresh_id(), spec=claim.spec._replace(ttl=LONG))
        process = self.random.randrange(2)
        one, _ = self.both(
            f"adopt {id} {new.id}",
            lambda: self.files[process].adopt(NAME, id, new),
            lambda: self.memory.adopt(NAME, id, new),
        )
        if one is not None:
            del self.claims[id]
            self.claims[new.id] = new, process
            self.granted[new.id] = self.granted.get(id, (one.fence, 0))

    def step(self) -> None:
        """Do a random step."""
        ids = list(self.claims)
        what = self.random.choices(
            [self.enter, self.again, self.leave, self.renew, self.adopt, self.evict],
            [5, 0.5, 6, 0.2, 0.1, 0.1] if self.simple else [5, 4, 5, 1, 1, 0.4],
        )[0]
        if what in (self.enter, self.renew, self.evict):
            what()
        elif ids:
            what(self.random.choice(ids))

    def evict(self) -> None:
        id = self.random.choice([None, *self.claims])
        self.both(f"evict {id}", lambda: self.files[0].evict(NAME, id), lambda: self.memory.evict(NAME, id))

    def close(self) -> None:
        for waiter, _ in self.waiters.values():
            waiter.close()
        for queue in self.files:
            queue.close()


def test_compiled_code_has_the_layout_of_a_slot() -> None:
    native = pytest.importorskip("interlock.stores.files._quick")
    s = slots
    assert native.LAYOUT == (
        s.SLOT, s.FENCE_AT, s.UNTIL_AT, s.SINCE_AT, s.HELD_AT, s.MOMENT, s.ID_AT, s.ID_WIDTH, s.PIPE_AT, s.TAIL_AT,
        MOST_IDLE,
    )  # fmt: skip


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "python"])
@pytest.mark.parametrize("seed", range(12))
def test_the_answers_are_those_of_the_line(
    seed: int, compiled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not compiled:
        monkeypatch.setattr(files_queue, "native", None)
    (tmp_path / "link").symlink_to(tmp_path / "locks")
    pair = Pair([tmp_path / "locks", tmp_path / "link"], seed)
    try:
        with contextlib.suppress(Stalled):
            for _ in range(300):
                pair.step()
    finally:
        pair.close()
