"""The queue on a store of steps: what it makes of their answers, and how long it asks a busy one."""

import asyncio
from typing import Any
from unittest.mock import ANY, AsyncMock, Mock

import pytest

from interlock.core.claims import PENDING, SEPARATOR, Claim, LockSpec
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.failures import Denied, Unreachable
from interlock.core.line import EMPTY, Origin, QueuedClaim, StepResult
from interlock.runtime.waiters import Waiters
from interlock.storekit._async.step_queue import AsyncStepQueue

HERE = Origin("home", "alive", "channel")
MINE = Claim("mine", LockSpec(f"{SEPARATOR}name", 1, 1, 0.3))
OTHER = Claim("other", LockSpec(f"{SEPARATOR}other", 1, 1, 0.3))
HELD = QueuedClaim("mine", "using", 1, 1, 9, 1, 7, 3, 4, 4, 2, False, "", "", "", "", "")
WAITS = StepResult(EMPTY, HELD._replace(state=PENDING), (), 1_500_000)


def queue(*answers: Any, **more: Any) -> tuple[AsyncStepQueue, Any]:
    """Return a queue on a store that gives these answers, the last one for ever; and the store."""
    given = [*answers]

    def next_one(*_: object) -> Any:
        answer = given.pop(0) if len(given) > 1 else given[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    notifier = Mock(waiters=Waiters(), origin=HERE)
    settings = {"step_now": Mock(return_value=None), "renew_many": AsyncMock(return_value={}), **more}
    steps = Mock(step=AsyncMock(side_effect=next_one), notifier=notifier, poll_after=4.0, **settings)
    return AsyncStepQueue(steps), steps


@pytest.mark.parametrize(
    ("step", "answer"),
    [
        (WAITS, ("pending", 0, 1.5, True, None, 0, None)),
        (WAITS._replace(line=None, look_in=99_000_000), ("pending", 0, 4.0, False, None, 0, None)),
        (WAITS._replace(look_in=0), ("pending", 0, 0.001, True, None, 0, None)),
        (WAITS._replace(look_in=99_000_000, places=80), ("pending", 0, 4.0, True, None, 0, None)),
        (WAITS._replace(look_in=99_000_000, places=600), ("pending", 0, 30.0, True, None, 0, None)),
        (WAITS._replace(places=600), ("pending", 0, 1.5, True, None, 0, None)),
        (StepResult(EMPTY, HELD), ("using", 3, 0.0, True, None, 2, None)),
        (StepResult(None, None), ("occupied", 0, 1.0, True, None, 0, None)),
        (None, ("busy", 0, 0.0005, False, None, 0, None)),
        (Unreachable("away"), ("busy", 0, 0.25, False, ANY, 0, None)),
        (UnknownOutcome("away"), ("indeterminate", 0, 0.25, False, ANY, 0, None)),
    ],
)
def test_what_a_claim_that_enters_is_told(step: Any, answer: Any) -> None:
    line, steps = queue(step)
    assert asyncio.run(line.enter(MINE, None, True, False)) == answer
    waiter: Any = Mock()
    assert asyncio.run(line.enter(MINE, waiter, True, False)) == answer
    assert ("mine" in steps.notifier.waiters.by_id) == (answer[0] in ("pending", "busy", "indeterminate"))


@pytest.mark.parametrize(
    ("error", "wait"), [(Denied("no"), True), (StoreError("no"), True), (Unreachable("no"), False)]
)
def test_an_error_that_no_retry_mends_is_raised(error: StoreError, wait: bool) -> None:
    with pytest.raises(type(error), match="no"):
        asyncio.run(queue(error)[0].enter(MINE, None, wait, False))


def test_the_leases_of_several_names_are_renewed_in_one_request() -> None:
    asked = []

    async def many(by_key: dict[str, list[str]]) -> dict[str, StepResult]:
        asked.append(dict(by_key))
        return {MINE.spec.key: StepResult(EMPTY, (True,))}

    line, steps = queue(StepResult(EMPTY, (True,)), renew_many=many)
    assert asyncio.run(line.renew([MINE])) == [True]
    assert asyncio.run(line.renew([MINE, OTHER])) == [True, True]
    assert asked == [{MINE.spec.key: ["mine"], OTHER.spec.key: ["other"]}]
    assert steps.step.await_count == 2


def test_a_busy_store_is_retried_for_a_tenth_of_the_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses = []
    now = [100.0]

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("interlock.runtime._aio.sleep", pause)
    monkeypatch.setattr("interlock.runtime.clock.now", lambda: now[0])
    line, _ = queue(None)
    line.busy_limit = 60.0
    assert [type(each) for each in asyncio.run(line.renew([MINE]))] == [StoreError]
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016]
    pauses.clear()
    line.busy_limit = 0.05
    with pytest.raises(StoreError, match="busy"):
        asyncio.run(line.delete_run_result(MINE.spec.key))
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.02]
