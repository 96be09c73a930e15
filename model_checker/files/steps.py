"""The file of one name, and one step of the store on it, write by write.

The production `core.line` decides, and the production `plan.actions` determines the writes, their order, and the
notifications in between; the code of `steps.FileSteps` around that is modelled here.  The compiled steps perform the
same writes as `plan.actions`; `tests/contract/test_line_equivalence.py` compares them with the line.

Numbers are names.  Only the order of fences matters, and whether one is the highest ever issued.  `until` is LATER
(counted from the owner's last request), EARLIER (from one before it) or OVER.  The row of a slot does not matter, so
rows are ordered by their fences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from interlock.core import line
from interlock.core._async import acquire as claiming
from interlock.core.claims import MICROS, PENDING, USING, Claim
from interlock.core.line import Origin, QueuedClaim, StoreTime
from interlock.core.queue import CLAIM_GONE, OCCUPIED, REFUSED, EnterResult
from interlock.stores.files import write_plan
from model_checker.files.client import TTL, Enter

Slot = QueuedClaim | int
IsAlive = Callable[[str], bool]
NOW = 0
OVER, EARLIER, LATER = NOW, 1, int(TTL * MICROS)


class Production(NamedTuple):
    """The decisions of a step, its writes, and the protocol of a caller: the package's, or a mutant's."""

    line: Any = line
    plan: Any = write_plan
    acquire: Callable[..., Any] = claiming.acquire


PACKAGE = Production()


class Files(NamedTuple):
    """The content of the file of a name; a free row is the fence of its last claim.

    `clock`: the time of day, which is beyond the fences of a removed file.  `peak`: the highest fence ever issued,
    which is not visible to the callers.
    """

    slots: tuple[Slot, ...] = ()
    clock: int = 0
    peak: int = 0

    @property
    def places(self) -> list[QueuedClaim]:
        """The slots that are in use, in line order."""
        return sorted((slot for slot in self.slots if isinstance(slot, QueuedClaim)), key=lambda place: place.fence)

    def holders(self) -> list[QueuedClaim]:
        """The slots that say that a claim holds the lock."""
        return [place for place in self.places if place.state == USING]

    def waiters(self) -> list[QueuedClaim]:
        """The slots that say that a claim waits, in line order."""
        return [place for place in self.places if place.state == PENDING]


class Cut(NamedTuple):
    """One of the calls of `LineFile.shorten`, or of `LineFile.discard`."""

    what: str
    top: int


class Stepped(NamedTuple):
    """A step as the store performs it: its actions in order, and its answer.

    `watch`: the liveness pipes that the caller must watch.
    """

    actions: tuple[Any, ...]
    answer: Any
    watch: tuple[str, ...] = ()


class Steps:
    """The steps of the store.

    Args:
        production: the decisions, of the package or of a mutant.
        shrinks: True to truncate files whenever the line is empty, not only when they are long.
    """

    def __init__(self, production: Production, shrinks: bool = False) -> None:
        self.line = production.line
        self.plan = production.plan
        self._shrinks = shrinks

    def enter(self, files: Files, claim: Claim, request: Enter, origin: Origin, is_alive: IsAlive) -> Stepped:
        """As `StepQueue.enter` on `FileSteps.step`."""
        wait = request.subscribed and request.wait
        step, actions = self._step(
            files, is_alive, (claim.id,), (claim.id,), self.line.enter, claim, origin, wait, request.again
        )
        place = step.answer
        if place is None:
            return Stepped(actions, CLAIM_GONE if request.again else OCCUPIED if request.wait else REFUSED)
        if place.state == USING:
            return Stepped(actions, EnterResult("using", place.fence))
        watch = self.plan.watched_by(step.line, claim.id) if request.subscribed and step.line is not None else ()
        return Stepped(actions, EnterResult("pending"), tuple(sorted(watch)))

    def change(self, files: Files, is_alive: IsAlive, ids: Sequence[str], transition: Any, *args: Any) -> Stepped:
        """As `FileSteps.step`: leave, renew, evict."""
        step, actions = self._step(files, is_alive, ids, (), transition, *args)
        return Stepped(actions, step.answer)

    def tidy(self, files: Files, is_alive: IsAlive) -> Stepped | None:
        """As `FileSteps._tidy`: remove the file if no live claim is there; by then the clock is beyond its fences."""
        live = [place for place in files.places if place.until > NOW and is_alive(place.liveness_token)]
        if not files.slots or live:
            return None
        top = self.plan.top_of(files.slots)
        return Stepped((Cut("clock", top), Cut("all", top)), True)

    def _step(
        self, files: Files, is_alive: IsAlive, ids: Sequence[str], me: Sequence[str], transition: Any, *args: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        before = self.plan.line_of(files.slots, 0, NOW)
        dead = self.plan.dead_among(before.places, ids, is_alive)
        step = transition(before, StoreTime(NOW, files.clock and files.clock + 1, dead), *args)
        actions = self.plan.actions(files.slots, before, step, me)
        if self._shrinks and step.line is not None and not step.line.places:
            actions += [Cut("row 0", step.line.max_fence), Cut("other rows", step.line.max_fence)]
        return step, tuple(actions)


def perform(files: Files, actions: Sequence[Any]) -> Files:
    """Return the files after some actions, not yet canonical; notifications are ignored."""
    slots: list[Slot] = list(files.slots)
    clock = files.clock
    for action in actions:
        if isinstance(action, Cut):
            clock = _cut(action, slots, clock)
        elif hasattr(action, "row"):
            shown = slots[action.row] if action.row < len(slots) else 0
            fence = shown if isinstance(shown, int) else shown.fence
            _put(slots, action.row, fence if action.place is None else action.place)
    return Files(tuple(slots), clock, files.peak)


def _cut(action: Cut, slots: list[Slot], clock: int) -> int:
    match action.what:
        case "row 0":
            _put(slots, 0, action.top)
        case "other rows":
            del slots[1:]
        case "all":
            slots.clear()
        case "clock":
            return max(clock, action.top)
    return clock


def _put(slots: list[Slot], row: int, slot: Slot) -> None:
    while len(slots) <= row:
        slots.append(0)
    slots[row] = slot


def told(action: Any) -> QueuedClaim | None:
    """Return the waiter that an action notifies; None if the action is a write."""
    place = getattr(action, "place", None)
    return place if not hasattr(action, "row") and isinstance(place, QueuedClaim) else None


def granted(before: Files, actions: Sequence[Any]) -> Iterator[QueuedClaim]:
    """Yield the claims that became holders by some actions: by a write of their slots, or by a notification."""
    known = {place.id for place in before.holders()}
    for action in actions:
        place = getattr(action, "place", None)
        if isinstance(place, QueuedClaim) and place.state == USING and place.id not in known:
            known.add(place.id)
            yield place


def canonical(files: Files) -> Files:
    """Return the same files with fences and rows renamed to a canonical form."""
    places = files.places
    top = max((slot if isinstance(slot, int) else slot.fence for slot in files.slots), default=0)
    names = {place.fence: at for at, place in enumerate(places, 1)}
    highest = names.get(top, len(places) + 1) if top else 0
    peak = highest if top >= files.peak else highest + 1
    free = [slot for slot in files.slots if isinstance(slot, int)]
    shown = sorted((highest if slot == top else 0 for slot in free), reverse=True)
    slots: Any = (
        *(place._replace(fence=names[place.fence], renewal_count=0, since=0, held=0) for place in places),
        *((highest if shown[at] else 0) if at == 0 else 0 for at in range(len(free))),
    )
    return Files(slots, peak if files.clock >= files.peak else 0, peak)
