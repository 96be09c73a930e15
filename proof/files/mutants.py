"""One safeguard removed at a time: each of these must be caught, or it would not be needed.

A mutant is a change in the text of a production module, which is then executed as a fresh module.
"""

from __future__ import annotations

from dataclasses import dataclass

from proof.files.configurations import (
    EXCLUSIVE,
    READER,
    TIMED,
    WRITER,
    Configuration,
    permits,
)
from proof.files.production import Production, changed

_E, _X, _S = EXCLUSIVE, WRITER, READER
_PLAIN = Configuration("N=2", (_E, _E))
_THREE = Configuration("N=3", (_E, _E, _E))
_KILL = Configuration("N=2, 1 kill", (_E, _E), kills=1)
_KILL_3 = Configuration("N=3, 1 kill", (_E, _E, _E), kills=1)
_CANCEL_3 = Configuration("N=3, 1 kill, 1 cancelled", (_E, _E, _E), kills=1, cancels=1)
_EVICT_3 = Configuration("N=3, 1 kill, 1 eviction", (_E, _E, _E), kills=1, evictions=1)
_SHARED = Configuration("X S S, 1 kill", (_X, _S, _S), kills=1)
_PERMITS = Configuration("semaphore of 2, N=4, 1 kill", (permits(1, 2),) * 4, kills=1)
_LAPSE = Configuration("N=2, 1 lapse", (_E, _E), lapses=1, looks=True)
_LAPSE_3 = Configuration("N=3, 1 lapse", (_E, _E, _E), lapses=1, looks=True)
_LAPSES = Configuration("N=2, 2 lapses, renewals", (_E, _E), lapses=2, renews=True, looks=True)
_TIMED = Configuration("waits and times out", (_E, TIMED))


@dataclass(frozen=True, slots=True)
class Mutant:
    """A safeguard removed.

    `module`: line, plan or claiming; `old`: a piece of its text that occurs once; `new`: what stands there instead;
    `configuration`: where it shows; `expected`: what the checker must say is wrong.
    """

    name: str
    module: str
    old: str
    new: str
    configuration: Configuration
    expected: str

    def production(self) -> Production:
        """Return the production code with this change.

        Raises:
            ValueError: the piece of text does not occur exactly once.
        """
        return changed(self.module, self.old, self.new)


MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a claim that stands in both files is not recognised",
        "plan",
        "fences = {slot.id: slot.number for slot in image.using}",
        "fences: dict[str, int] = {}",
        _KILL,
        "is left behind",
    ),
    Mutant(
        "leave frees whoever holds, not the own claim",
        "plan",
        "            if slot.id == id:\n                self.using.remove(slot)",
        "            if slot:\n                self.using.remove(slot)",
        _LAPSE_3,
        "hold the lock at once",
    ),
    Mutant(
        "a promotion frees the place in line before the holder's slot is written",
        "plan",
        "            self._use(slot)\n            self._tell(slot, self.top)",
        '            self._free("pending", slot)\n            self._use(slot)\n'
        "            self._ring(slot, Granted(slot.id, self.top))",
        _SHARED,
        "is gone, though nobody took it away",
    ),
    Mutant(
        "a promotion frees the place in line before the pipe is rung",
        "plan",
        'self.after.append(Write("pending", slot.row, None))',
        'self.before.append(Write("pending", slot.row, None))',
        _SHARED,
        "nothing tells it so",
    ),
    Mutant(
        "the first in line is rung first",
        "plan",
        "self.wakeups.insert(0, (slot.alive, slot.pipe, granted))",
        "self.wakeups.append((slot.alive, slot.pipe, granted))",
        _SHARED,
        "nothing tells it so",
    ),
    Mutant(
        "a promoted waiter is not told",
        "plan",
        "self._ring(slot, Granted(slot.id, fence))",
        "pass",
        _SHARED,
        "nothing tells it so",
    ),
    Mutant(
        "the own lease is extended though it has ended",
        "plan",
        "                    if slot.until > self._now:\n                        # A wait",
        "                    if True:\n                        # A wait",
        _LAPSE,
        "is revived",
    ),
    Mutant(
        "a renewal revives a lease that has ended",
        "plan",
        "if slot.id == id and slot.until > self._now:",
        "if slot.id == id:",
        _LAPSES,
        "is revived",
    ),
    Mutant(
        "it is not asked whether a promoted waiter lives",
        "plan",
        "if self._ended(self.pending[0]):",
        "if self.pending[0].until <= self._now:",
        _KILL,
        "though its process is dead",
    ),
    Mutant(
        "it is not asked whether a promoted waiter's lease lasts",
        "plan",
        "if self._ended(self.pending[0]):",
        "if not self._is_alive(self.pending[0].alive):",
        _LAPSE,
        "though its lease has ended",
    ),
    Mutant(
        "a dead waiter for whom there is no room blocks those behind it",
        "plan",
        "if self._ended(self.pending[0]):",
        "if self._ended(self.pending[0]) and next(promotable([*self.using, *self.pending]), None):",
        _SHARED,
        "the lock is free for",
    ),
    Mutant(
        "dead holders stay",
        "plan",
        "return slot.until <= self._now or not self._is_alive(slot.alive)",
        "return slot.until <= self._now",
        _KILL,
        "though its process is dead",
    ),
    Mutant(
        "a lease that has not ended is taken away",
        "plan",
        "return slot.until <= self._now or not self._is_alive(slot.alive)",
        "return True",
        _PLAIN,
        "at once",
    ),
    Mutant(
        "a fence follows those of the holders only, not of the slots that are done",
        "plan",
        "self.top = self._new_fence(self.top)",
        "self.top = self._new_fence(max((each.number for each in self.using), default=0))",
        _THREE,
        "is not higher than all before",
    ),
    Mutant(
        "a newcomer overtakes those who wait",
        "plan",
        "if has_room([*self.using, *self.pending], me.units, me.capacity):",
        "if has_room(self.using, me.units, me.capacity):",
        Configuration("X S S", (_X, _S, _S)),
        "overtakes",
    ),
    Mutant(
        "the first in line watches nobody",
        "line",
        "    return before\n",
        "    return before[:0]\n",
        _KILL,
        "nothing wakes it",
    ),
    Mutant(
        "the first in line watches one of several holders",
        "line",
        "    return before\n",
        "    return before[-1:]\n",
        _PERMITS,
        "nothing wakes it",
    ),
    Mutant(
        "a waiter does not watch the one before it",
        "line",
        "        return before[-1:]",
        "        return before[:0]",
        _KILL_3,
        "nothing wakes it",
    ),
    Mutant(
        "nobody tells the one behind a waiter that left or was evicted",
        "plan",
        "            self._ring(self.pending[index])",
        "            pass",
        _CANCEL_3,
        "nothing wakes it",
    ),
    Mutant(
        "nobody tells the one behind a waiter that was evicted",
        "plan",
        "self._withdraw(self.pending.index(slot))",
        'self._free("pending", self.pending.pop(self.pending.index(slot)))',
        _EVICT_3,
        "nothing wakes it",
    ),
    Mutant(
        "an evicted waiter is not told",
        "plan",
        "                self._ring(slot)\n            else:",
        "            else:",
        Configuration("N=2, 1 eviction", (_E, _E), evictions=1),
        "waits without a place in line",
    ),
    Mutant(
        "the new first in line is not told to watch all holders",
        "plan",
        "if len(self.using) > 1 and self.pending:  # several hold: the new head of the line must watch them all",
        "if False:",
        _PERMITS,
        "nothing wakes it",
    ),
    Mutant(
        "the flag is cleared while somebody waits",
        "plan",
        "waiting = bool(self.pending)",
        "waiting = len(self.pending) > 1",
        _PLAIN,
        "nothing wakes it",
    ),
    Mutant(
        "the flag is never set", "plan", "waiting = bool(self.pending)", "waiting = False", _PLAIN, "nothing wakes it"
    ),
    Mutant(
        "the flag is written before the pipes are rung",
        "plan",
        "self.after.append(Flag(waiting))",
        "self.before.append(Flag(waiting))",
        _SHARED,
        "is left behind",
    ),
    Mutant(
        "no deadline check after the promotion",
        "claiming",
        "            if alive:\n",
        "            if True:\n",
        _LAPSE,
        "after its own deadline",
    ),
    Mutant(
        "a claim promoted too late is not given back",
        "claiming",
        "            at.left_behind = yield from _give_back(queue, call.claim)\n",
        "",
        _LAPSE,
        "nobody can ever hold the lock any more",
    ),
    Mutant(
        "news of an earlier claim are taken for those of this one",
        "claiming",
        "if granted is not None and granted.id == call.claim.id:",
        "if granted is not None:",
        Configuration("N=2, 1 eviction, looks", (_E, _E), evictions=1, looks=True),
        "another claim than its own",
    ),
    Mutant(
        "a time-out leaves the claim in line",
        "claiming",
        "        yield from _time_is_over(queue, call, answer.outage, at.in_line)",
        "        pass",
        _TIMED,
        "is left behind",
    ),
)
