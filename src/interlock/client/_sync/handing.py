# Generated from _async/handing.py by tools/unasync.py; change that one.
"""Handing a hold over: a token that outlives its process, and who takes it on, extends it or ends it."""

from typing import Any

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client.base import AcquireOptions
from interlock.client.tokens import Token, gone
from interlock.core.claims import Claim
from interlock.core.errors import LockError
from interlock.runtime import _threads as rt
from interlock.runtime import log


def attach(client: Client, token: Token, ttl: float | None, options: AcquireOptions) -> Grant:
    """Let the claim of a token go on as one of the caller, who renews it from now on; the token is used up.

    Raises:
        LockLost: it was used before, or its lease has ended, or it was evicted.
        StoreError: the store could not be asked.
    """
    owner = rt.caller()
    claim = Claim(rt.fresh_id(), token.spec(ttl), rt.name_of(owner))
    state, sent = client.state(), client.now()
    try:
        held = state.queue.adopt(claim.spec.key, token.id, claim)
    except rt.CANCELLED:
        try:
            rt.finish(state.queue.leave, claim)
        except LockError as error:
            log.warn("could not take back a lock that was being attached, its lease ends: %s", error)
        raise
    if held is None:
        raise gone(token)
    grant = Grant(held._replace(deadline=sent + claim.spec.ttl), client, state.watchdog, owner, options)
    state.watchdog.add(grant)
    grant._tell_acquired(sent)
    return grant


def extend(client: Client, token: Token, ttl: float | None) -> bool:
    """Let the lease of a token's claim last for a full ttl from now; False if it is gone."""
    claim = Claim(token.id, token.spec(ttl), token.who)
    held: Any = client.state().queue.adopt(claim.spec.key, token.id, claim, True)
    return held is not None


def give_back(client: Client, token: Token) -> bool:
    """Release the claim of a token; False if it is gone."""
    return bool(client.state().queue.leave(Claim(token.id, token.spec(None))))
