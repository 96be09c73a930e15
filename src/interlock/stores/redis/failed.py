"""Requests that failed: what is known of their claims, and whether it helps to ask again."""

import random
from time import monotonic
from typing import Any

from interlock._redis.errors import Passing, Redirected, Refused
from interlock._redis.message import ConnectionEnded, Denied, Message, NoAnswer, Unreachable
from interlock.core.claims import Claim
from interlock.core.effects import Ask, Op
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import EnterResult

FORGET_AFTER = 60.0  # seconds
RECOVERY = 60.0  # seconds; Cluster and Sentinel need 15 and 30 by default to find out that a server is away
FIRST_CONTACT = 2.0  # seconds; where nothing was ever done, the address is probably wrong
FOR_OPERATORS = ("OOM", "MISCONF")  # what does not pass by itself


class RequestState:
    """What is known of a claim whose last request failed.

    Attributes:
        indeterminate: True if the server may have the claim.
        cut: True if the server could not be reached the last time.
        refused: True if the server answered the last time, and did nothing.
    """

    __slots__ = ("cut", "indeterminate", "refused")

    def __init__(self) -> None:
        self.indeterminate = False
        self.cut = False
        self.refused = False


class FailedRequests(dict[str, RequestState]):
    """What is known of each claim whose last request failed, by the claim's id."""

    def note(self, id: str, error: StoreError, again: bool) -> None:
        """Keep what is known of a claim whose request failed."""
        request = self.get(id)
        if request is None:
            request = self[id] = RequestState()
        request.indeterminate = request.indeterminate or again or isinstance(error, UnknownOutcome)
        # A server that lets in no more connections may still have those that are open.
        request.cut = isinstance(error, Unreachable) and not (request.indeterminate and isinstance(error, Denied))
        request.refused = isinstance(error, Refused)


class Unsent(dict[str, float]):
    """The claims whose leaving the server need not be told, and since when."""

    def note(self, id: str) -> None:
        """Keep that the server need not be told that a claim leaves, as long as somebody may try."""
        now = monotonic()
        for each, moment in list(self.items()):
            if now - moment > FORGET_AFTER:
                self.pop(each, None)
        self[id] = now


def may_pass(error: StoreError, in_line: bool, follows: bool) -> bool:
    """Tell whether it helps to wait.

    Args:
        error: why the request failed.
        in_line: whether its claim may stand in line.
        follows: whether the connections go where a name has moved to.
    """
    if isinstance(error, Redirected):
        return follows
    if isinstance(error, Passing):
        return in_line or error.code not in FOR_OPERATORS
    return isinstance(error, (UnknownOutcome, Unreachable)) and not isinstance(error, Denied)


def recovery(claim: Claim, error: StoreError, answered: bool) -> float:
    """Return how long a server that is away is waited for without a limit.

    Args:
        claim: the one that waits.
        error: why its request failed.
        answered: whether the server ever did what it was asked.
    """
    if answered or (isinstance(error, Passing) and error.code != "READONLY"):
        return max(RECOVERY, claim.spec.ttl)
    return FIRST_CONTACT


def slot_moves() -> EnterResult:
    """Return the answer to a waiter whose lock's slot is being moved."""
    return EnterResult("busy", 0, random.uniform(0.02, 0.06), asked=False)


def ask_twice(pool: Any, message: Message) -> Op[Any]:
    """Ask what may be asked twice."""
    try:
        return (yield Ask(pool, message))
    except (ConnectionEnded, NoAnswer):  # the connection may have been forgotten on the way, the server be there
        return (yield Ask(pool, message))
