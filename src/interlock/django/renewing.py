"""Renewals of leases in the table of claims."""

import random
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from interlock.core.claims import Claim
from interlock.core.errors import StoreError
from interlock.core.queue import Renewed
from interlock.django import claimlines
from interlock.django.performing import RETRY_LIMIT, Performer, unlocked
from interlock.django.pool import WAIT_LIMIT as FREE_CONNECTION
from interlock.django.records import chunks
from interlock.django.statements import MICROSECONDS, compiled

COMMITTING = 0.2  # seconds that renewals of many leases wait for a row that another transaction has locked
LOCKED = "a transaction that is being committed keeps the claim locked"


def renew(performer: Performer, claims: Sequence[Claim]) -> Sequence[Renewed]:
    """Extend leases; what another transaction keeps locked holds nobody else back, and is tried again."""
    answers: dict[str, Renewed] = {}
    for ttl in {claim.spec.ttl for claim in claims}:
        ids = [claim.id for claim in claims if claim.spec.ttl == ttl]
        left = time.monotonic() + (min(RETRY_LIMIT, ttl / 3) if len(claims) == 1 else min(COMMITTING, ttl / 10))
        while ids:
            locked: list[str] = []
            for some in chunks(ids):
                step = partial(_renew_some, performer, some, ttl)
                answers |= performer.do(step, wait_limit=min(FREE_CONNECTION, ttl / 3), repeats=True)
                locked += [id for id in some if id not in answers]
            if locked and time.monotonic() >= left:
                answers |= dict.fromkeys(locked, StoreError(LOCKED))
                break
            ids = locked
            if ids:
                time.sleep(random.uniform(0.005, 0.02))
    return [answers[claim.id] for claim in claims]


def _renew_some(performer: Performer, ids: Sequence[str], ttl: float, connection: Any) -> dict[str, bool]:
    """Extend leases, and look at the clock afterwards.

    A statement of another, begun when a lease had just ended, may not have seen an extension that was on its way
    at that moment.  So an extension counts only if it was there before the old lease ended.

    Returns:
        For each id whether it lives; nothing of those that another transaction has locked.
    """
    with unlocked(connection, ids) as before:
        if before:
            extend = compiled(claimlines.extend_all(list(before)), connection)
            extend.count(connection, ttl=int(ttl * MICROSECONDS))
    after = {id: (until, now) for id, until, now in compiled(claimlines.leases(ids), connection).rows(connection)}
    alive = {id for id, (_, now) in after.items() if id in before and now < before[id]}
    late = [id for id in before if id in after and id not in alive]
    if late:
        with unlocked(connection, late) as free:
            for id in free:
                performer.statement(connection, claimlines.end, None).count(connection, id=id)
    locked = {id for id, (until, now) in after.items() if id not in before and now < until}
    return {id: id in alive for id in ids if id not in locked}
