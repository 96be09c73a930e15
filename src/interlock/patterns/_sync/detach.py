# Generated from _async/detach.py by tools/unasync.py; change that one.
"""Detached holds: the token of a claim that outlives its process can be attached, renewed or released."""

from interlock.client._sync.client import Client
from interlock.client._sync.grants import Grant
from interlock.client.arguments import AcquireOptions
from interlock.client.messages import closed_meanwhile
from interlock.client.tokens import Token, absent, gone, read
from interlock.core.claims import Claim, shown_text
from interlock.runtime import _threads as rt


def attach(client: Client, text: str, ttl: float | None, options: AcquireOptions) -> Grant:
    """Take over the claim of a token: it belongs to the caller and is renewed from now on; the token is used up.

    Raises:
        LockLost: it was used before, or its lease has ended, or it was evicted.
        InvalidArgument: it is not a token of this store and namespace.
        StoreError: the store could not be asked.
    """
    token = _token_for(client, text)
    owner = rt.caller()
    claim = Claim(rt.fresh_id(), token.spec(ttl), shown_text(owner.get_name()))
    state, sent = client.state(), client.now()
    state.entering[claim.id] = claim, owner  # `close` waits for it
    try:
        held = client.adopt(state, token.id, claim)
        if held is None:
            raise gone(token, client.where)
        grant = Grant(held._replace(deadline=sent + claim.spec.ttl), client, state.watchdog, owner, options)
        state.watchdog.add(grant)
        if client.closed:  # `close` may have looked at the watchdog before
            grant.release()
            raise closed_meanwhile(claim.spec)
    finally:
        state.entering.pop(claim.id, None)
    grant._emit_acquired(sent)
    return grant


def extend(client: Client, text: str, ttl: float | None) -> bool:
    """Let the lease of a token's claim last for a full ttl from now; False if it is gone."""
    token = _token_for(client, text)
    claim = Claim(token.id, token.spec(ttl), token.who)
    extended = client.state().queue.adopt(claim.spec.key, token.id, claim, True)
    return extended is not None or absent(token, client.where)


def give_back(client: Client, text: str) -> bool:
    """Release the claim of a token; False if it is gone."""
    token = _token_for(client, text)
    released = client.state().queue.leave(Claim(token.id, token.spec(None)))
    return bool(released) or absent(token, client.where)


def _token_for(client: Client, text: str) -> Token:
    """Return what a token says to a connection that can use it."""
    client.need("detach")
    return read(text, client.namespace)
