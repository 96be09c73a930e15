"""Detached locks: attach, renew or release one by its token."""

from interlock.client._async.client import AsyncClient
from interlock.client._async.grants import AsyncGrant
from interlock.client.arguments import AcquireOptions
from interlock.client.messages import closed_meanwhile
from interlock.client.tokens import Token, absent, gone, read
from interlock.core.claims import Claim, LockSpec, shown_text
from interlock.runtime import _aio as rt


async def attach(client: AsyncClient, text: str, ttl: float | None, options: AcquireOptions) -> AsyncGrant:
    """Take over the claim of a token, and renew it here; the token becomes invalid.

    Raises:
        LockLost: the token was used before, its lease expired, or it was evicted.
        InvalidArgument: the text is not a token of this store and namespace.
        StoreError: the store could not be asked.
    """
    token = _token_for(client, text)
    owner = rt.caller()
    state, sent = client.state(), client.now()
    claim = Claim(rt.fresh_id(), _spec_of(client, token, ttl), state.marked(shown_text(owner.get_name())))
    state.entering[claim.id] = claim, owner  # `close` waits for it
    try:
        held = await client.adopt(state, token.id, claim)
        if held is None:
            raise gone(token, client.where)
        grant = AsyncGrant(held._replace(deadline=sent + claim.spec.ttl), client, state.watchdog, owner, options)
        state.watchdog.add(grant)
        if client.closed:  # `close` may have read the watchdog's grants before
            await grant.release()
            raise closed_meanwhile(claim.spec)
    finally:
        state.entering.pop(claim.id, None)
    grant._emit_acquired(sent)
    return grant


async def extend(client: AsyncClient, text: str, ttl: float | None) -> bool:
    """Renew the lease of a token's claim for a full ttl; return False if it is gone."""
    token = _token_for(client, text)
    claim = Claim(token.id, _spec_of(client, token, ttl), token.who)
    extended = await client.state().queue.adopt(claim.spec.key, token.id, claim, True)
    return extended is not None or absent(token, client.where)


async def give_back(client: AsyncClient, text: str) -> bool:
    """Release the claim of a token; return False if it is gone."""
    token = _token_for(client, text)
    released = await client.state().queue.leave(Claim(token.id, token.spec(None)))
    return bool(released) or absent(token, client.where)


def _token_for(client: AsyncClient, text: str) -> Token:
    """Return the content of a token, if this connection can use it."""
    client.need("detach")
    return read(text, client.namespace)


def _spec_of(client: AsyncClient, token: Token, ttl: float | None) -> LockSpec:
    return token.spec(None if ttl is None else client.checked_ttl(ttl))
