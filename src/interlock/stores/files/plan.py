"""One step of a line file, as pure decisions: which slots to write, in which order, and whom to tell.

The step runs under the guard, so nobody else writes meanwhile; but the process may be killed between any two
writes, and every step therefore begins by putting right what such a death left: waiters whose turn came, and
claims that stand in both files.  Those were promoted, and perhaps not told: a promoted claim is taken out of
pending/ only after its wake-up pipe was rung, and the flag that keeps others from the uncontended path is written
last. The model checker drives these functions; the store performs what they decide.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from interlock.core.positions import has_room, promotable, watched
from interlock.core.queue import GONE, OCCUPIED, REFUSED, EnterResult, Granted
from interlock.stores.files.record import Slot

File: TypeAlias = Literal["using", "pending"]
T = TypeVar("T")
LOOK_AGAIN = 1.0  # seconds; a safety net, every hand-over and every death is told


class Write(NamedTuple):
    """One write of one slot; without a slot it frees it, and only its number still counts."""

    file: File
    row: int
    slot: Slot | None


class Flag(NamedTuple):
    """One write of the flag that tells a newcomer to look at the waiters."""

    waiting: bool


class Image(NamedTuple):
    """What the two files of a name say.

    Attributes:
        using: the holders.
        pending: the waiters, in the order of their places.
        free_using, free_pending: indexes of slots that may be written.
        top: the highest fence that any slot shows.
        waiting: the flag that tells a newcomer to look at the waiters at all.
    """

    using: list[Slot]
    pending: list[Slot]
    free_using: list[int]
    free_pending: list[int]
    top: int
    waiting: bool


class PlannedStep:
    """What is to be done in one step: the writes `before`, then the wake-up pipes, then the writes `after`.

    Args:
        image: what the files say.
        now: the machine's monotonic clock, in seconds.
        is_alive: tells of a liveness pipe whether its process lives.
        new_fence: makes a fence that is higher than the one it is given.
    """

    def __init__(
        self, image: Image, now: float, is_alive: Callable[[str], bool], new_fence: Callable[[int], int]
    ) -> None:
        self._now = now
        self._is_alive = is_alive
        self._new_fence = new_fence
        self.top = image.top
        self._free_using = image.free_using
        self._free_pending = image.free_pending
        self._rows = {
            "using": len(image.using) + len(image.free_using),
            "pending": len(image.pending) + len(image.free_pending),
        }
        self._flag = image.waiting
        self.before: list[Write | Flag] = []
        self.after: list[Write | Flag] = []
        self.wakeups: list[tuple[str, int, Granted | None]] = []
        self.using: list[Slot] = list(image.using)
        self.pending: list[Slot] = list(image.pending)
        if self.pending:
            fences = {slot.id: slot.number for slot in image.using}
            for slot in [slot for slot in self.pending if slot.id in fences]:
                self.pending.remove(slot)
                self._tell(slot, fences[slot.id])  # its promotion was cut short: it holds
                if len(self.using) > 1 and self.pending:
                    self._ring(self.pending[0])

    @property
    def writes(self) -> list[Write | Flag]:
        """All writes, in their order."""
        return [*self.before, *self.after]

    # -- what has changed by itself ---------------------------------------------------------------------

    def _ended(self, slot: Slot) -> bool:
        return slot.until <= self._now or not self._is_alive(slot.alive)

    def settle(self) -> None:
        """Drop holders that are over, and promote, from the head, the live waiters for whom there is room."""
        if self.pending:
            self._drop_ended_holders()
        while self.pending:
            if self._ended(self.pending[0]):  # it blocks those behind it, also where there is no room for it
                self._free("pending", self.pending.pop(0))
                continue
            slot = next(promotable([*self.using, *self.pending]), None)
            if slot is None:
                break
            self.pending.remove(slot)
            self._use(slot)
            self._tell(slot, self.top)
            if len(self.using) > 1 and self.pending:  # several hold: the new head of the line must watch them all
                self._ring(self.pending[0])

    # -- the operations ---------------------------------------------------------------------------------

    def enter(self, me: Slot, wait: bool, again: bool, subscribed: bool) -> EnterResult:
        """Ask for the lock, or where the claim stands, with its lease extended to `me.until`.

        Args:
            me: the claim; row, state and number are of no account.
            wait, again: as in `Queue.enter`.
            subscribed: whether `me.pipe` is one that somebody listens to.
        """
        again = self._renew_own(me) or again
        self.settle()
        for slot in self.using:
            if slot.id == me.id:
                return self._end(EnterResult("using", slot.number))
        mine = next((slot for slot in self.pending if slot.id == me.id), None)
        if mine is None:
            if again:
                return self._end(GONE)
            if not self.pending and not has_room(self.using, me.units, me.capacity):
                self._drop_ended_holders()
            if has_room([*self.using, *self.pending], me.units, me.capacity):
                self._use(me)
                return self._end(EnterResult("using", self.top))
            if not wait:
                return self._end(REFUSED)
            if not subscribed:
                return self._end(OCCUPIED)
            mine = self._queue(me)
        self._drop_ended_before(mine)
        return self._end(EnterResult("pending", 0, self._recheck_after()))

    def token_of(self, id: str) -> str | None:
        """Return the liveness pipe under which a claim in line was made; None if it is not in line."""
        return next((slot.alive for slot in [*self.using, *self.pending] if slot.id == id), None)

    def watch(self, id: str) -> list[str]:
        """Return the liveness pipes whose death matters to the waiter `id`."""
        line = [*self.using, *self.pending]
        for index, slot in enumerate(line):
            if slot.id == id:
                return sorted({each.alive for each in watched(line, index)})
        return []

    def leave(self, id: str) -> bool:
        """Take the claim out of the line and hand over; True if it was there."""
        for index, slot in enumerate(self.pending):
            if slot.id == id:
                self._withdraw(index)
                self.settle()
                return self._end(True)
        for slot in self.using:
            if slot.id == id:
                self.using.remove(slot)
                self._free("using", slot)
                self.settle()
                return self._end(True)
        self.settle()
        return self._end(False)

    def renew(self, id: str, until: float) -> bool:
        """Extend the lease of a claim that has not expired."""
        for file, slots in self._files():
            for at, slot in enumerate(slots):
                if slot.id == id and slot.until > self._now:
                    slots[at] = slot._replace(until=until)
                    self._write(file, slots[at])
                    return True
        return False

    def evict(self, id: str | None) -> int:
        """Remove one claim, or all; return how many."""
        victims = [slot for slot in [*self.pending, *self.using] if id is None or slot.id == id]
        for slot in victims:
            if slot in self.pending:
                self._withdraw(self.pending.index(slot))
                self._ring(slot)
            else:
                self.using.remove(slot)
                self._free("using", slot)
        self.settle()
        return self._end(len(victims))

    # -- writes -----------------------------------------------------------------------------------------

    def _renew_own(self, me: Slot) -> bool:
        """Extend the lease of a claim that is in line, drop it if it has expired; True if it was there."""
        found = False
        for file, slots in self._files():
            for at, slot in enumerate(slots):
                if slot.id == me.id:
                    found = True
                    if slot.until > self._now:
                        # A wait without a wake-up pipe, by the same claim again, does not take its wake-up pipe away.
                        kept = me if me.pipe else slot
                        slots[at] = slot._replace(until=me.until, pipe=kept.pipe, raw=kept.raw)
                        self._write(file, slots[at])
                    elif file == "using":  # never revived
                        del slots[at]
                        self._free(file, slot)
                    else:
                        self._withdraw(at)
                    break
        return found

    def _withdraw(self, index: int) -> None:
        """Take a waiter out of the line; the one behind it has a new claim before it to watch."""
        self._free("pending", self.pending.pop(index))
        if index < len(self.pending):
            self._ring(self.pending[index])

    def _files(self) -> tuple[tuple[File, list[Slot]], tuple[File, list[Slot]]]:
        return ("using", self.using), ("pending", self.pending)

    def _drop_ended_before(self, mine: Slot) -> None:
        """Drop the waiters before `mine` that are over: it must have somebody alive to watch."""
        index = self.pending.index(mine)
        while index and self._ended(self.pending[index - 1]):
            index -= 1
            self._free("pending", self.pending.pop(index))

    def _drop_ended_holders(self) -> None:
        for slot in [slot for slot in self.using if self._ended(slot)]:
            self.using.remove(slot)
            self._free("using", slot)

    def _use(self, slot: Slot) -> None:
        self.top = self._new_fence(self.top)
        row = self._free_using.pop(0) if self._free_using else self._new_row("using")
        _, _, _, until, id, units, capacity, alive, pipe, raw = slot
        holder = Slot(row, "using", self.top, until, id, units, capacity, alive, pipe, raw)
        self.using.append(holder)
        self._write("using", holder)

    def _queue(self, me: Slot) -> Slot:
        row = self._free_pending.pop(0) if self._free_pending else self._new_row("pending")
        place = self.pending[-1].number + 1 if self.pending else 1
        _, _, _, until, id, units, capacity, alive, pipe, raw = me
        waiter = Slot(row, "pending", place, until, id, units, capacity, alive, pipe, raw)
        self.pending.append(waiter)
        self._write("pending", waiter)
        return waiter

    def _new_row(self, file: File) -> int:
        self._rows[file] += 1
        return self._rows[file] - 1

    def _tell(self, slot: Slot, fence: int) -> None:
        """Tell a waiter that it holds the lock; its place in line is free afterwards, so that it is surely told."""
        self._ring(slot, Granted(slot.id, fence))
        self.after.append(Write("pending", slot.row, None))

    def _ring(self, slot: Slot, granted: Granted | None = None) -> None:
        # The first in line is rung last: it is the one that the death of this process, or whatever led to this
        # step, wakes anyhow, and then it tells those behind it again.
        self.wakeups.insert(0, (slot.alive, slot.pipe, granted))

    def _write(self, file: File, slot: Slot) -> None:
        write = Write(file, slot.row, slot)
        if self.before and self.before[-1] == (file, slot.row, None):
            self.before[-1] = write  # freed and used again in one step: written once
        else:
            self.before.append(write)

    def _free(self, file: File, slot: Slot) -> None:
        self.before.append(Write(file, slot.row, None))
        (self._free_using if file == "using" else self._free_pending).insert(0, slot.row)

    def _end(self, answer: T) -> T:
        waiting = bool(self.pending)
        if waiting != self._flag:
            self.after.append(Flag(waiting))
        return answer

    def _recheck_after(self) -> float:
        ends = min([slot.until for slot in self.using], default=self._now)
        return max(0.001, min(LOOK_AGAIN, ends - self._now))
