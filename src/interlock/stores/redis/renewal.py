"""Renewals: many claims are renewed by one call, and each has an answer of its own."""

from collections.abc import Sequence
from typing import Any

from interlock._redis.errors import refusal
from interlock._redis.keys import keys_of_line, line_of
from interlock._redis.message import Message
from interlock._redis.pipeline import ask_all
from interlock._redis.resp import ReplyError
from interlock._redis.scripts import RENEW, call
from interlock.core.claims import Claim
from interlock.core.effects import Op
from interlock.core.errors import StoreError
from interlock.core.queue import Renewed

AT_ONCE = 100  # claims renewed by one call


def renew_all(pool: Any, claims: Sequence[Claim], io_timeout: float) -> Op[list[Renewed]]:
    """Renew claims.

    Args:
        pool: the connections to a server or a cluster.
        claims: those to renew.
        io_timeout: seconds to wait for a reply; less where a lease is short.
    """
    batches = pool.batches(claims, AT_ONCE)
    replies = yield from ask_all(pool, [_renewal(batch, io_timeout) for batch in batches])
    answers: dict[str, Renewed] = {}
    for batch, reply in zip(batches, replies, strict=True):
        if isinstance(reply, StoreError):  # it is not the fault of the others
            answers |= {claim.id: reply for claim in batch}
        else:
            answers |= {claim.id: _renewed(claim, word) for claim, word in zip(batch, reply, strict=True)}
    return [answers[claim.id] for claim in claims]


def _renewal(batch: Sequence[Claim], io_timeout: float) -> Message:
    """Return the call that renews claims."""
    # An attempt that gets no answer must leave time for others before the lease ends.
    io_timeout = min(io_timeout, *(claim.spec.ttl / 3 for claim in batch))
    keys: list[str] = []
    words: list[str] = []
    for claim in batch:
        keys += keys_of_line(line_of(claim.spec.key))
        words += (claim.id, str(int(claim.spec.ttl * 1000 + 0.999)))
    return Message(call(RENEW, tuple(keys), *words), keys[0], io_timeout=io_timeout)


def _renewed(claim: Claim, word: Any) -> Renewed:
    """Translate the answer of the script for one claim: a number, or what was wrong with its keys."""
    if type(word) is int:
        return word == 1
    return refusal(ReplyError(word.decode(errors="replace")), "the server", line_of(claim.spec.key))
