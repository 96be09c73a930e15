"""Acquire, on a store whose answers are told, with a clock that only pauses move: its pauses and its end."""

import asyncio
import itertools
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from interlock.core._async.acquire import acquire
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, CLAIM_GONE, GIVEN_UP, REFUSED, AcquireCall, EnterResult, Outage
from interlock.runtime._aio import plain

CLAIM = Claim("1", LockSpec(f"{SEPARATOR}name", 1, 1, 30.0), "a test")
USING = EnterResult("using", 7, slot=2)
PENDING = EnterResult("pending", poll_after=4.0)
AWAY = EnterResult("busy", poll_after=0.25, lease_extended=False, outage=Outage(StoreError("away"), 0.5))


def ends(answers: Any, deadline: float | None = None, wait: bool = True) -> tuple[Any, ...]:
    """Return how a call ends, its pauses, the claims that it entered (+: again), and those that it took out or left.

    A claim that the call gives up without taking it out is shown with a question mark.
    """
    moments = [0.0]

    async def pause(seconds: float) -> None:
        moments.append(round(moments[-1] + seconds, 6))

    fresh = map(str, range(2, 9))
    waiter = Mock(wait=pause)
    queue = Mock(enter=AsyncMock(side_effect=answers), leave=AsyncMock(), subscribe=lambda: waiter)
    rt = Mock(
        sleep=pause,
        before=plain(lambda now, moment: now() < moment),
        time_by=plain(lambda now: now()),
        fresh_id=lambda: next(fresh),
    )
    call = AcquireCall(CLAIM, lambda: moments[-1], 0.0, deadline, wait)
    left: list[str] = []
    queue.leave.side_effect = lambda claim: left.append(claim.id)
    call.on_left = lambda claim: left.append(f"{claim.id}?")
    try:
        held = asyncio.run(acquire(rt, queue, call))
        end: Any = held and (held.claim.id, held.fence, round(held.deadline, 6), held.slot)
    except StoreError as error:
        end = type(error).__name__
    entered = " ".join(each.args[0].id + "+" * each.args[3] for each in queue.enter.mock_calls)
    pauses = [round(after - before, 6) for before, after in itertools.pairwise(moments)]
    return end, pauses, entered, left


ENDS: list[tuple[Any, ...]] = [
    ([USING], None, True, ("1", 7, 30.0, 2), [], "1", []),
    ([REFUSED], 1.0, False, None, [], "1", []),
    ([CLAIM_GONE, USING], None, True, ("2", 7, 30.0, 2), [], "1 2", []),
    ([CLAIM_GONE], 0.0, True, None, [], "1", []),
    ([GIVEN_UP] * 3 + [USING], None, True, ("4", 7, 30.14, 2), [0.02, 0.04, 0.08], "1 2 3 4", ["1?", "2?", "3?"]),
    ([GIVEN_UP, CLAIM_GONE, GIVEN_UP, USING], None, True, ("4", 7, 30.04, 2), [0.02, 0.02], "1 2 3 4", ["1?", "3?"]),
    ([CLAIM_GONE, *[GIVEN_UP] * 3, USING], None, True, ("5", 7, 30.14, 2), [0.02, 0.04, 0.08], "1 2 3 4 5",
     ["2?", "3?", "4?"]),
    ([GIVEN_UP] * 4, None, True, "UnknownOutcome", [0.02, 0.04, 0.08], "1 2 3 4", ["1?", "2?", "3?"]),
    ([UnknownOutcome("no answer")] * 3 + [USING], None, True, ("1", 7, 30.0015, 2), [0.0005] * 3, "1 1+ 1+ 1+", []),
    ([UnknownOutcome("no answer")] * 4, None, True, "UnknownOutcome", [0.0005] * 3, "1 1+ 1+ 1+", []),
    ([BUSY, BUSY._replace(poll_after=1.0), BUSY, USING], None, True, ("1", 7, 31.021025, 2),
     [0.0005, 1.000025, 0.0205], "1 1 1 1", []),
    ([BUSY] * 9, 0.001, False, None, [0.0005, 0.000525], "1 1 1", []),
    ([PENDING] * 3 + [USING], None, True, ("1", 7, 38.0, 2), [4.0, 4.0], "1 1+ 1+ 1+", []),
    ([PENDING, PENDING, CLAIM_GONE, USING], None, True, ("2", 7, 34.0, 2), [4.0], "1 1+ 1+ 2", []),
    ([PENDING._replace(poll_after=99.0)] * 2 + [USING], None, True, ("1", 7, 40.0, 2), [10.0], "1 1+ 1+", []),
    ([PENDING] * 9, 5.0, True, None, [4.0, 1.0], "1 1+ 1+ 1+", ["1"]),
    ([PENDING] * 2 + [USING], 9.0, False, ("1", 7, 38.0, 2), [4.0, 4.0], "1 1+ 1+", []),
    ([AWAY] * 9, None, True, "StoreError", [0.25, 0.2625], "1 1 1", []),
    ([AWAY] * 9, 0.6, True, "StoreError", [0.25, 0.2625, 0.1075], "1 1 1 1", []),
    ([AWAY, AWAY, BUSY, AWAY, AWAY, USING], None, True, ("1", 7, 31.073, 2), [0.25, 0.2625, 0.0205, 0.27, 0.27],
     "1 1 1 1 1 1", []),
    ([AWAY._replace(state="indeterminate")] * 9, 0.6, True, "StoreError", [0.25, 0.25, 0.1], "1 1+ 1+ 1+", ["1?"]),
    ([PENDING, PENDING, *[AWAY] * 9], 5.0, True, None, [4.0, 0.27, 0.27, 0.27, 0.19], "1 1+ 1+ 1+ 1+ 1+ 1+", ["1?"]),
    ([AWAY._replace(state="gone")] * 9, None, True, "StoreError", [0.25] * 3, "1 2 3 4", ["1?", "2?", "3?", "4?"]),
    ([AWAY._replace(state="gone")] * 9, 0.4, True, "StoreError", [0.25, 0.15], "1 2 3", ["1?", "2?", "3?"]),
]  # fmt: skip


@pytest.mark.parametrize(("answers", "deadline", "wait", "end", "pauses", "entered", "left"), ENDS)
def test_a_call_ends_after_its_answers(
    answers: Any, deadline: float | None, wait: bool, end: Any, pauses: Any, entered: str, left: Any
) -> None:
    assert ends(answers, deadline, wait) == (end, pauses, entered, left)
