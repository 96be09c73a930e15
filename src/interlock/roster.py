"""The grants under watch, and what the answers to renewals mean for them; shared by both watchdogs."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from interlock import log
from interlock.grants import GONE_THERE, LEASE_ENDED, BaseGrant

G = TypeVar("G", bound=BaseGrant)
LONGEST_SLEEP = 3600.0
SHORTEST_RETRY = 0.02


class Roster(Generic[G]):
    """The grants under watch, and what the answer to a renewal means for each."""

    def __init__(self, tell_lost: Callable[[G], None]) -> None:
        self.grants: dict[str, G] = {}
        self._tell_lost = tell_lost

    def due(self, now: float) -> list[G]:
        # Those that are due soon go along in the same request.
        grants = list(self.grants.values())
        if not any(grant._due <= now for grant in grants):
            return []
        return [
            grant for grant in grants if grant._due <= now + (grant._claim.terms.ttl / 10 if grant._renews else 0)
        ]

    def next_due(self) -> float:
        return min((grant._due for grant in list(self.grants.values())), default=math.inf)

    def split(self, grants: Iterable[G], now: float) -> list[G]:
        """Drop those whose time is over, and return the others that are to be renewed."""
        renewable = []
        for grant in grants:
            if now >= grant._deadline:
                self.lost(grant, LEASE_ENDED)
            elif grant._renews:
                renewable.append(grant)
            else:
                grant._due = grant._deadline
        return renewable

    def answered(self, grants: Sequence[G], answers: Sequence[bool], sent: float) -> None:
        for grant, alive in zip(grants, answers, strict=True):
            if alive:
                grant._renewed(sent)
            else:
                self.lost(grant, GONE_THERE)

    def failed(self, grants: Sequence[G], error: Exception, now: float) -> None:
        for grant in grants:
            grant._due = min(grant._deadline, now + max(SHORTEST_RETRY, grant._claim.terms.ttl / 20))
        log.warn("renewing %d lease(s) failed, trying again: %s", len(grants), error)

    def lost(self, grant: G, why: str) -> None:
        if self.grants.pop(grant.id, None) is None:
            return  # it is being released: not lost
        grant._lose(why)
        if not grant.lost:
            return  # its release was on its way
        try:
            self._tell_lost(grant)
        except Exception:
            log.exception("on_lost of %r failed", grant)
