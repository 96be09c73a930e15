"""The conditions that every step of the store must satisfy, whether finished or interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from interlock.core.claims import USING, fits
from interlock.core.line import QueuedClaim
from model_checker.files.steps import OVER, Files, IsAlive, Stepped, canonical, granted, perform, told


class Judge(NamedTuple):
    """The judge of a step.

    `is_alive`: tells whether a process lives; `leaving`: claims of callers that were interrupted and do not wait any
    more; `holding`: claims that hold the lock, whatever the file says; `most_rows`: the most rows of a file.
    """

    is_alive: IsAlive
    leaving: frozenset[str]
    holding: frozenset[str]
    most_rows: int

    def after(self, files: Files, actions: Sequence[Any]) -> tuple[Files, str | None]:
        """Return the files after some actions of a step, and what is wrong with them."""
        after = perform(files, actions)
        known = {place.id for place in files.places}
        wrong, peak = None, files.peak
        for place in (place for place in after.places if place.id not in known):
            if place.fence <= peak:
                wrong = f"the fence of {place.id} is not higher than all earlier fences"
            peak = max(peak, place.fence)
        for place in granted(files, actions):
            wrong = wrong or self._overtaken(files, after, place, actions) or self._ended(files, place)
        wrong = wrong or _revived(files, after) or _wrongly_told(files, after, actions) or self._too_many(after)
        return canonical(after._replace(peak=peak)), wrong

    def _overtaken(self, before: Files, after: Files, winner: QueuedClaim, actions: Sequence[Any]) -> str | None:
        holds = {place.id for place in [*before.holders(), *granted(before, actions)]} | self.leaving | self.holding
        still = {place.id for place in after.waiters()}
        for waiter in before.waiters():
            if waiter.id == winner.id:
                return None
            waits = waiter.id not in holds and waiter.until > OVER and self.is_alive(waiter.liveness_token)
            # An interrupted step has notified the last in line first; those before are notified by the next step.
            if waits and waiter.id in still and not self._has_room(before, after, waiter):
                return f"{winner.id} overtakes {waiter.id}, which was in line earlier"
        return None

    def _has_room(self, before: Files, after: Files, waiter: QueuedClaim) -> bool:
        ahead = [place for place in after.places if place.fence < waiter.fence]
        live = [place for place in ahead if place.until > OVER and self.is_alive(place.liveness_token)]
        return fits(waiter.units, waiter.capacity, [(place.units, place.capacity) for place in live])

    def _ended(self, before: Files, winner: QueuedClaim) -> str | None:
        if not self.is_alive(winner.liveness_token):
            return f"{winner.id} is granted the lock though its process is dead"
        if any(place.id == winner.id and place.until == OVER for place in before.waiters()):
            return f"{winner.id} is granted the lock though its lease has ended"
        return None

    def _too_many(self, after: Files) -> str | None:
        live = [place for place in after.holders() if place.until > OVER and self.is_alive(place.liveness_token)]
        if live and not fits(0, live[0].capacity, [(place.units, place.capacity) for place in live]):
            return f"the file shows {' and '.join(sorted(place.id for place in live))} at once"
        if len(after.slots) > self.most_rows:
            return "the file has more rows than there were claims at a time"
        return None


def _revived(before: Files, after: Files) -> str | None:
    over = {place.id for place in before.places if place.until == OVER}
    revived = (place.id for place in after.places if place.id in over and place.until > OVER)
    return next((f"the lease of {id} had ended and is revived" for id in revived), None)


def _wrongly_told(before: Files, after: Files, actions: Sequence[Any]) -> str | None:
    fences = {place.id: place.fence for place in [*before.places, *after.places]}
    holders = (place for place in filter(None, map(told, actions)) if place.state == USING)
    wrong = (place.id for place in holders if fences.get(place.id) != place.fence)
    return next((f"{id} is told a fence that is not its own" for id in wrong), None)


def wrongly_answered(after: Files, id: str, stepped: Stepped) -> str | None:
    """Return what is wrong with the answer of a finished step; `after` is not canonical yet."""
    if getattr(stepped.answer, "state", None) != "using":
        return None
    if stepped.answer.fence in [place.fence for place in after.holders() if place.id == id]:
        return None
    return f"{id} is answered with a fence that is not its own"
