"""What the ends of connections of both colours share: who is called off, and who is waited for."""

from collections.abc import Callable
from typing import Any, TypeAlias

from interlock.core.acquire import AcquireCall
from interlock.core.claims import Claim
from interlock.locks.session import BaseSession, Entering

WITHDRAW_LIMIT = 2.0  # seconds that closing waits for those who give up; about one I/O time-out
SHORTEST_LOOK, LONGEST_LOOK = 0.0002, 0.01
AtWork: TypeAlias = Callable[[Any], bool]
"""Tells whether a thread, or a loop, may still come to the end of its call, so that it is waited for."""


def claim_of(each: Entering) -> Claim:
    """Return the claim to take out of the line if that call is broken off."""
    return each.claim if isinstance(each, AcquireCall) else each[0]


def owner_of(each: Entering) -> Any:
    """Return whose call it is."""
    return each.owner if isinstance(each, AcquireCall) else each[1]


def call_off(each: Entering) -> None:
    """Let a call that waits end soon, because its connection is closed."""
    if isinstance(each, AcquireCall) and not each.closed:
        each.call_off()


def others_go(session: BaseSession[Any], at_work: AtWork) -> bool:
    """Call off all who enter; return whether some of them, or of those who leave, are to be waited for."""
    others = False
    for each in list(session.entering.values()):
        call_off(each)
        others = others or at_work(owner_of(each))
    return others or others_leave(session, at_work)


def others_leave(session: BaseSession[Any], at_work: AtWork) -> bool:
    """Tell whether some of those who release something are to be waited for."""
    return any(at_work(owner) for owner, _ in list(session.leaving.values()))
