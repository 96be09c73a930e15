"""Handing a hold over: a token that outlives its process, and who takes it on, extends it or ends it."""

from typing import Any

from interlock.client._async.client import AsyncClient
from interlock.client._async.grants import AsyncGrant
from interlock.client.base import AcquireOptions
from interlock.client.tokens import Token, gone
from interlock.core.claims import Claim
from interlock.core.errors import LockError
from interlock.runtime import _aio as rt
from interlock.runtime import log


async def attach(client: AsyncClient, token: Token, ttl: float | None, options: AcquireOptions) -> AsyncGrant:
    """Let the claim of a token go on as one of the caller, who renews it from now on; the token is used up.

    Raises:
        LockLost: it was used before, or its lease has ended, or it was evicted.
        StoreError: the store could not be asked.
    """
    owner = rt.caller()
    claim = Claim(rt.fresh_id(), token.spec(ttl), rt.name_of(owner))
    state, sent = client.state(), client.now()
    try:
        held = await state.queue.adopt(claim.spec.key, token.id, claim)
    except rt.CANCELLED:
        try:
            await rt.finish(state.queue.leave, claim)
        except LockError as error:
            log.warn("could not take back a lock that was being attached, its lease ends: %s", error)
        raise
    if held is None:
        raise gone(token)
    grant = AsyncGrant(held._replace(deadline=sent + claim.spec.ttl), client, state.watchdog, owner, options)
    state.watchdog.add(grant)
    grant._tell_acquired(sent)
    return grant


async def extend(client: AsyncClient, token: Token, ttl: float | None) -> bool:
    """Let the lease of a token's claim last for a full ttl from now; False if it is gone."""
    claim = Claim(token.id, token.spec(ttl), token.who)
    held: Any = await client.state().queue.adopt(claim.spec.key, token.id, claim, True)
    return held is not None


async def give_back(client: AsyncClient, token: Token) -> bool:
    """Release the claim of a token; False if it is gone."""
    return bool(await client.state().queue.leave(Claim(token.id, token.spec(None))))
