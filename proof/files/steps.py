"""The two files of one name, and one step of the store on them, write by write.

The production `plan.PlannedStep` decides; what `store.FileStore` does with its decisions (order of writes and
wake-ups, the uncontended paths) is repeated here; `tests/protocol/test_files_fast_path.py` holds the two together.

Numbers are names.  Of a fence only matters whether it is the highest ever granted (1) or not (0), of a place only
its rank.  `until` is LATER (counted from the owner's last request), EARLIER (from one before it) or OVER.  Which
row of a file a slot stands in does not matter either, so rows are kept in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from interlock.core.queue import OCCUPIED, EnterResult, Granted
from interlock.stores.files.record import Slot
from proof.files.client import Enter

T = TypeVar("T")
OVER, EARLIER, LATER = 0.0, 1.0, 2.0
NOW = 0.0


class Files(NamedTuple):
    """What the files of a name say; a free row of using/ is the number that it still shows, one of pending/ None.

    `floor`: the folder's file fences.  `peak`: the highest fence ever granted, which nobody in the world can see.
    """

    using: tuple[Slot | int, ...] = ()
    pending: tuple[Slot | None, ...] = ()
    flag: bool = False
    floor: int = 0
    peak: int = 0

    def holders(self) -> list[Slot]:
        """The slots of using/ that are in use."""
        return [slot for slot in self.using if isinstance(slot, Slot)]

    def waiters(self) -> list[Slot]:
        """The slots of pending/ that are in use, in line order."""
        return [slot for slot in self.pending if slot is not None]


class Ring(NamedTuple):
    """A pipe to ring."""

    alive: str
    pipe: int
    granted: Granted | None


class Shrink(NamedTuple):
    """One of the three calls of `LineFile.shrink`, or of the three of `LineFile.remove`."""

    what: str
    top: int


class Stepped(NamedTuple):
    """A step as the store performs it: what it does, in this order, and what it answers.

    `watch`: the liveness pipes that the caller is to watch.  `how`: words.
    """

    actions: tuple[Any, ...]
    answer: Any
    watch: tuple[str, ...] = ()
    how: str = ""


class Steps:
    """The steps of the store.

    Args:
        plan: the module `interlock.stores.files.plan`, or a mutant of it.
        shrinks: files are cut whenever nobody is in line, not only when they are long.
    """

    def __init__(self, plan: ModuleType, shrinks: bool = False) -> None:
        self.plan = plan
        self._shrinks = shrinks

    def enter(self, files: Files, me: Slot, request: Enter, is_alive: Callable[[str], bool]) -> Stepped:
        """As `FileQueue.enter_now`."""
        if not request.subscribed and not request.again:
            if files.flag:
                if request.wait:
                    return Stepped((), OCCUPIED, (), "somebody waits")
            elif not files.holders():
                return self.use(files, me)
        return self.enter_line(files, me, request, is_alive)

    def use(self, files: Files, me: Slot) -> Stepped:
        """As `FastPath.use`."""
        fence = 1 + (_top(files) or files.floor)
        holder = me._replace(row=0, state="using", number=fence, pipe=0)
        return Stepped((self.plan.Write("using", 0, holder),), EnterResult("using", fence), (), "nobody is in line")

    def enter_line(self, files: Files, me: Slot, request: Enter, is_alive: Callable[[str], bool]) -> Stepped:
        """As `FileQueue._enter_line`."""
        step = self._step(files, is_alive)
        result = step.enter(me, request.wait, request.again, request.subscribed)
        watch = tuple(step.watch(me.id)) if result.state == "pending" and request.subscribed else ()
        return Stepped(self._actions(step, me.id), result, watch)

    def leave(self, files: Files, id: str, is_alive: Callable[[str], bool]) -> Stepped:
        """As `FileQueue.leave_now`; the uncontended path and the short hand-over where they may be taken."""
        own = next((slot for slot in files.holders() if slot.id == id), None)
        if own is not None and not files.flag:
            return Stepped((self.plan.Write("using", own.row, None),), True)
        if own is not None and own.capacity == 1 and len(files.using) == 1:
            handed = self.hand_over(files, id, is_alive)
            if handed is not None:
                return handed
        return self.change(files, is_alive, lambda step: step.leave(id), id)

    def hand_over(self, files: Files, id: str, is_alive: Callable[[str], bool]) -> Stepped | None:
        """As `FastPath.leave`, its hand-over."""
        waiters = files.waiters()
        if not waiters or waiters[0].capacity != 1 or waiters[0].id == id:
            return None
        first = waiters[0]
        if first.until <= NOW or not is_alive(first.alive):
            return None
        fence = 1 + _top(files)
        plan = self.plan
        actions: list[Any] = [
            plan.Write("using", 0, first._replace(row=0, state="using", number=fence)),
            Ring(first.alive, first.pipe, Granted(first.id, fence)),
            plan.Write("pending", first.row, None),
        ]
        if len(waiters) == 1:
            actions.append(plan.Flag(False))
        return Stepped(tuple(actions), True)

    def change(
        self, files: Files, is_alive: Callable[[str], bool], change: Callable[[Any], object], me: str = ""
    ) -> Stepped:
        """As `FileQueue._do`: leave, renew, evict."""
        step = self._step(files, is_alive)
        answer = change(step)
        return Stepped(self._actions(step, me), answer)

    def tidy(self, files: Files, is_alive: Callable[[str], bool]) -> Stepped | None:
        """As `OpenFolder._tidy`: remove the files if no live process has a claim there."""
        if not files.using or any(is_alive(slot.alive) for slot in [*files.holders(), *files.waiters()]):
            return None
        top = _top(files)
        return Stepped((Shrink("floor", top), Shrink("no pending", top), Shrink("no using", top)), True)

    def _step(self, files: Files, is_alive: Callable[[str], bool]) -> Any:
        # A new file shows no fence; the folder's floor stands in.
        image = self.plan.Image(
            files.holders(),
            files.waiters(),
            [row for row, slot in enumerate(files.using) if not isinstance(slot, Slot)],
            [row for row, slot in enumerate(files.pending) if slot is None],
            _top(files) or files.floor,
            files.flag,
        )
        return self.plan.PlannedStep(image, NOW, is_alive, lambda top: top + 1)

    def _actions(self, step: Any, me: str) -> tuple[Any, ...]:
        """As `FileQueue._perform`."""
        actions: list[Any] = list(step.before)
        actions += [Ring(*pipe) for pipe in step.wakeups if pipe[2] is None or pipe[2].id != me]
        actions += step.after
        if self._shrinks and not step.using and not step.pending:
            actions += [Shrink(what, step.top) for what in ("row 0", "other rows", "no pending")]
        return tuple(actions)


def perform(files: Files, actions: tuple[Any, ...]) -> Files:
    """Return the files after some writes, not yet canonical; wake-ups are passed over."""
    using: list[Slot | int] = list(files.using)
    pending: list[Slot | None] = list(files.pending)
    flag, floor = files.flag, files.floor
    for action in actions:
        if isinstance(action, Ring):
            continue
        if isinstance(action, Shrink):
            floor = _cut(action, using, pending, floor)
            flag = flag and action.what != "no using"
        elif hasattr(action, "waiting"):
            flag = action.waiting
        elif action.file == "using":
            _put(using, action.row, _shown(using, action.row) if action.slot is None else action.slot, 0)
        else:
            _put(pending, action.row, action.slot, None)
    return Files(tuple(using), tuple(pending), flag, floor, files.peak)


def _cut(action: Shrink, using: list[Slot | int], pending: list[Slot | None], floor: int) -> int:
    match action.what:
        case "row 0":
            _put(using, 0, action.top, 0)
        case "other rows":
            del using[1:]
        case "no pending":
            pending.clear()
        case "no using":
            using.clear()
        case "floor":
            return max(floor, action.top)
    return floor


def _put(rows: list[T], row: int, slot: T, free: T) -> None:
    while len(rows) <= row:
        rows.append(free)
    rows[row] = slot


def _shown(using: list[Slot | int], row: int) -> int:
    slot = using[row] if row < len(using) else 0
    return slot.number if isinstance(slot, Slot) else slot


def _top(files: Files) -> int:
    return max((slot.number if isinstance(slot, Slot) else slot for slot in files.using), default=0)


def granted(before: Files, actions: tuple[Any, ...]) -> Iterator[Slot]:
    """Yield the claims that became holders by some writes, in the order of the writes."""
    known = {slot.id for slot in before.holders()}
    for action in actions:
        slot = getattr(action, "slot", None)
        if slot is not None and action.file == "using" and slot.id not in known:
            known.add(slot.id)
            yield slot


def canonical(files: Files) -> Files:
    """Return the same files with numbers and rows given names anew."""
    peak = files.peak
    using: list[Slot | int] = []
    for slot in files.using:
        if isinstance(slot, Slot):
            using.append(slot._replace(number=int(peak > 0 and slot.number >= peak)))
        else:
            using.append(int(peak > 0 and slot >= peak))
    using.sort(key=_place)
    rows = [slot._replace(row=row) if isinstance(slot, Slot) else slot for row, slot in enumerate(using)]
    waiters = sorted(files.waiters(), key=lambda slot: slot.number)
    pending = [slot._replace(row=row, number=row + 1) for row, slot in enumerate(waiters)]
    free = (None,) * (len(files.pending) - len(pending))
    floor = int(peak > 0 and files.floor >= peak)
    return Files(tuple(rows), (*pending, *free), files.flag, floor, int(peak > 0))


def _place(slot: Slot | int) -> tuple[int, str]:
    return (0, slot.id) if isinstance(slot, Slot) else (2 - slot, "")
