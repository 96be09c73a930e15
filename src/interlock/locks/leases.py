"""The grants under watch, and what the answers to renewals mean for them; shared by both watchdogs."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import ref

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import Renewed
from interlock.locks.events import Kind
from interlock.locks.grants import GONE_THERE, LEASE_ENDED, BaseGrant
from interlock.locks.unreleased import DEV, caller, warn
from interlock.runtime import log
from interlock.runtime.process import pid

G = TypeVar("G", bound=BaseGrant)
Tell: TypeAlias = Callable[[Sequence[G], Kind, str], None]
LONGEST_SLEEP = 3600.0
SHORTEST_RETRY = 0.02
MOST_DOUBTED = 256


class Entry(NamedTuple, Generic[G]):
    """A claim that the store may have.

    Attributes:
        grant: its grant; None if that was collected before it was released.
        claim: the claim.
        owner: who acquired it, if that is known.
    """

    grant: G | None
    claim: Claim
    owner: Any


class LeaseTable(Generic[G]):
    """The grants under watch, and what the answer to a renewal means for each.

    It holds them weakly: a grant that was dropped can be neither used nor released, so its lease is renewed no more.

    Args:
        tell_lost: called once for each grant that is lost; never fails.
        tell: called with grants, what happened to them, and why, if anybody listens; never fails.

    Attributes:
        watched: by id, the grants with what is to be known of them when they are collected.
        doubted: ids of claims that the store may not have any more.
    """

    def __init__(self, tell_lost: Callable[[G], None], tell: Tell[G]) -> None:
        self.watched: dict[str, tuple[ref[G], Claim, Any, str]] = {}
        self._pid = pid()
        self._dropped: dict[str, tuple[Claim, Any, float]] = {}
        self.doubted: dict[str, None] = {}
        self._staying: dict[str, tuple[Claim, float]] = {}
        self._tell_lost = tell_lost
        self._tell = tell

    def add(self, grant: G) -> None:
        """Watch over `grant` from now on."""
        # A grant whose release failed raised that, and needs no warning when it is collected.
        reference = ref(grant) if grant._leaving else ref(grant, self._collected)
        self.watched[grant.id] = reference, grant._claim, grant._owner, caller() if DEV else ""
        if self.doubted:
            self.is_doubted(grant)

    def _collected(self, gone: "ref[G]") -> None:
        """Warn: nobody can release that grant any more."""
        for id, (reference, claim, owner, where) in list(self.watched.items()):
            if reference is gone and self.watched.pop(id, None) is not None and self._pid == pid():
                self._dropped[id] = claim, owner, time.monotonic() + claim.spec.ttl
                warn(claim.spec.key, where, gone)

    def doubt(self, id: str) -> bool:
        """Let a grant's lease be renewed at once, as the store may not have its claim any more.

        Args:
            id: of the claim, which may become a grant only later.

        Returns:
            True if it is under watch.
        """
        self.doubted[id] = None
        if len(self.doubted) > MOST_DOUBTED:
            self.doubted.pop(next(iter(self.doubted)), None)
        watched = self.watched.get(id)
        grant = watched[0]() if watched is not None else None
        return grant is not None and self.is_doubted(grant)

    def is_doubted(self, grant: G) -> bool:
        """Tell whether a grant is to be renewed at once, and see to it."""
        if grant.id not in self.doubted:
            return False
        self.doubted.pop(grant.id, None)
        grant._due = 0.0
        return True

    def live(self) -> list[G]:
        """Return the grants under watch, after putting those aside that were collected."""
        found: list[G] = []
        for id, (reference, claim, owner, _) in list(self.watched.items()):
            grant = reference()
            if grant is not None:
                found.append(grant)
            elif self.watched.pop(id, None) is not None:
                self._dropped[id] = (claim, owner, time.monotonic() + claim.spec.ttl)
        return found

    def entries(self) -> list[Entry[G]]:
        """Return the claims that the store may have: those under watch, and the dropped whose lease may go on."""
        found = [Entry(grant, grant._claim, grant._owner) for grant in self.live()]
        self._forget_dropped(time.monotonic())
        return found + [Entry(None, claim, owner) for claim, owner, _ in list(self._dropped.values())]

    def _forget_dropped(self, now: float) -> None:
        """Forget what was dropped and whose lease has ended."""
        for id, (_, _, until) in list(self._dropped.items()):
            if until <= now:
                self._dropped.pop(id, None)

    def stay(self, grant: G) -> None:
        """Watch over `grant` no more, whose claim stays until the end of its `at_least`."""
        self._staying[grant.id] = grant._claim, grant._free_at
        self.watched.pop(grant.id, None)

    def over(self, now: float) -> list[Claim]:
        """Return the claims that have stayed long enough, and forget them."""
        claims = [claim for claim, free_at in list(self._staying.values()) if free_at <= now]
        for claim in claims:
            self._staying.pop(claim.id, None)
        return claims

    def forget(self, entry: Entry[G]) -> None:
        """Forget a claim that has left the store."""
        self.watched.pop(entry.claim.id, None)
        self._dropped.pop(entry.claim.id, None)

    def look(self, now: float) -> list[G]:
        """Tell the losses, and return what is to be renewed now; until it is answered, only its deadline counts."""
        grants = []
        self._forget_dropped(now)
        for grant in self.live():
            if now >= grant._deadline:
                self.lost(grant, LEASE_ENDED)
            elif grant._renews or grant._due < grant._deadline:  # doubted
                grants.append(grant)
        if not any(grant._due <= now for grant in grants):
            return []
        # Those that are due soon go along in the same request.
        due = [
            grant
            for grant in grants
            if grant._due < grant._deadline and grant._due <= now + grant._claim.spec.ttl / 10
        ]
        for grant in due:
            grant._due = grant._deadline
        return due

    def take_abandoned(self, grants: list[G]) -> list[G]:
        """Take those out of `grants` whose block, or last handle, is gone; warn of handles that were forgotten."""
        abandoned = [grant for grant in grants if grant.abandoned()]
        for grant in abandoned:
            grants.remove(grant)
            watched = self.watched.get(grant.id)
            if watched is not None and getattr(grant._block, "forgotten", False):
                try:
                    warn(grant._claim.spec.key, watched[3], grant)
                except ResourceWarning as error:  # where warnings are errors: nobody could catch it here
                    log.warn("%s", error)
        return abandoned

    def next_due(self) -> float:
        """Return when to look again."""
        upcoming = min((grant._due for grant in self.live()), default=math.inf)
        self._forget_dropped(time.monotonic())
        for _, _, until in list(self._dropped.values()):
            upcoming = min(upcoming, until)
        for _, free_at in list(self._staying.values()):
            upcoming = min(upcoming, free_at)
        return upcoming

    def answered(self, grants: Sequence[G], answers: Sequence[Renewed], sent: float) -> None:
        """Take the answer of each; those that could not be asked are asked again, and hold nobody back."""
        failed: list[G] = []
        renewed: list[G] = []
        problem: BaseException | None = None
        for grant, answer in zip(grants, answers, strict=True):
            if isinstance(answer, StoreError):
                failed.append(grant)
                problem = answer
            elif not answer:
                self.lost(grant, GONE_THERE)
            elif grant.id in self.watched and grant._renews:
                grant._renewed(sent)
                if grant._session.heard:
                    renewed.append(grant)
        if renewed:
            self._tell(renewed, "renewed", "")
        if problem is not None:
            self.failed(failed, problem, time.monotonic())

    def failed(self, grants: Sequence[G], error: BaseException, now: float) -> None:
        """Ask again in a while."""
        self.again(grants, now)
        watched = [grant for grant in grants if grant.id in self.watched]  # the others were released meanwhile
        if watched:
            log.warn("renewing %d lease(s) failed, trying again: %s", len(watched), error)
        heard = [grant for grant in watched if grant._session.heard]
        if heard:
            self._tell(heard, "renewal failed", f"{type(error).__name__}: {error}")

    def again(self, grants: Sequence[G], now: float) -> None:
        """As `failed`, when nothing is wrong."""
        for grant in grants:
            grant._due = min(grant._deadline, now + max(SHORTEST_RETRY, grant._claim.spec.ttl / 20))

    def lost(self, grant: G, why: str) -> None:
        """Note that the store no longer has the claim, and tell."""
        if self.watched.pop(grant.id, None) is None:
            return  # it is being released: not lost
        grant._lose(why)
        lost = grant.lost  # else its release was on its way
        if grant._session.heard:
            self._tell([grant], "lost" if lost else "released", why)
        if lost:
            self._tell_lost(grant)
            grant._warn_of_loss()
