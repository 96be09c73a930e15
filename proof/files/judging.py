"""What must hold of every step of the store, finished or broken off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from interlock.core.claims import fits
from interlock.stores.files.record import Slot
from proof.files.steps import OVER, Files, Ring, Stepped, canonical, granted, perform

IsAlive = Callable[[str], bool]


class Judge(NamedTuple):
    """What judges a step.

    `leaving`: claims of callers that were interrupted and do not wait any more; `most_rows`: how many rows a file
    may have.
    """

    is_alive: IsAlive
    leaving: frozenset[str]
    most_rows: int

    def after(self, files: Files, actions: tuple[Any, ...]) -> tuple[Files, str | None]:
        """Return the files after some actions of a step, and what is wrong with them."""
        after = perform(files, actions)
        wrong, peak = None, files.peak
        for slot in granted(files, actions):
            if slot.number <= peak:
                wrong = f"the fence of {slot.id} is not higher than all before"
            peak = max(peak, slot.number)
            wrong = wrong or self._overtaken(files, after, slot) or self._ended(files, slot)
        wrong = wrong or _revived(files, after) or _wrongly_granted(files, after, actions) or self._too_many(after)
        return canonical(after._replace(peak=peak)), wrong

    def _overtaken(self, before: Files, after: Files, winner: Slot) -> str | None:
        holds = {slot.id for slot in before.holders()} | self.leaving
        still = {slot.id for slot in after.waiters()} - {slot.id for slot in after.holders()}
        for waiter in before.waiters():
            if waiter.id == winner.id:
                return None
            waits = waiter.id not in holds and waiter.until > OVER and self.is_alive(waiter.alive)
            if waits and waiter.id in still:
                return f"{winner.id} overtakes {waiter.id}, which stood in line before it"
        return None

    def _ended(self, before: Files, winner: Slot) -> str | None:
        if not self.is_alive(winner.alive):
            return f"{winner.id} is granted the lock though its process is dead"
        if any(slot.id == winner.id and slot.until == OVER for slot in before.waiters()):
            return f"{winner.id} is granted the lock though its lease has ended"
        return None

    def _too_many(self, after: Files) -> str | None:
        live = [slot for slot in after.holders() if slot.until > OVER and self.is_alive(slot.alive)]
        if live and not fits(0, live[0].capacity, [(slot.units, slot.capacity) for slot in live]):
            return f"using/ shows {' and '.join(sorted(slot.id for slot in live))} at once"
        if max(len(after.using), len(after.pending)) > self.most_rows:
            return "the files have more rows than there were claims at a time"
        return None


def _revived(before: Files, after: Files) -> str | None:
    over = {slot.id for slot in [*before.holders(), *before.waiters()] if slot.until == OVER}
    for slot in [*after.holders(), *after.waiters()]:
        if slot.id in over and slot.until > OVER:
            return f"the lease of {slot.id} had ended and is revived"
    return None


def _wrongly_granted(before: Files, after: Files, actions: tuple[Any, ...]) -> str | None:
    fences = {slot.id: slot.number for slot in [*before.holders(), *after.holders()]}
    for action in actions:
        granted = action.granted if isinstance(action, Ring) else None
        if granted is not None and fences.get(granted.id) != granted.fence:
            return f"{granted.id} is told a fence that is not its own"
    return None


def wrongly_answered(after: Files, id: str, stepped: Stepped) -> str | None:
    """Return what is wrong with the answer of a finished step; `after` is not canonical yet."""
    if getattr(stepped.answer, "state", None) != "using":
        return None
    if stepped.answer.fence in [slot.number for slot in after.holders() if slot.id == id]:
        return None
    return f"{id} is answered with a fence that is not its own"
