"""A release by a task: bodies that a loss cancels, and cancellations from elsewhere."""

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.errors import LockLost
from interlock.locks.aio import grants as of_tasks
from tests.support.spied_grants import NOW, Colour


class Body:
    """Takes the place of the task in the block; its loop runs at once what is to run soon."""

    def __init__(self, cancelling: int = 0, done: bool = False) -> None:
        self.left = cancelling
        self.is_done = done
        self.cancelled: list[str] = []
        self.soon: list[Callable[[], None]] = []

    def cancelling(self) -> int:
        """As of every task."""
        return self.left

    def uncancel(self) -> int:
        """As of every task."""
        self.left -= 1
        return self.left

    def done(self) -> bool:
        """As of every task."""
        return self.is_done

    def cancel(self, why: str) -> None:
        """As of every task."""
        self.left += 1
        self.cancelled.append(why)

    def get_loop(self) -> Any:
        """As of every task."""
        return SimpleNamespace(call_soon=self.soon.append)


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    """What sets the calling task."""
    with monkeypatch.context() as patched:
        yield lambda body: patched.setattr(asyncio, "current_task", lambda: body)


def test_a_loss_cancels_the_body_and_that_cancellation_is_taken_back(tasks: Colour, current: Any) -> None:
    grant, body = tasks.grant(), Body(cancelling=1)
    grant._strike()
    current(body)
    grant._enter_body()
    assert (grant._body, grant._cancelling) == (body, 1)
    current(Body())
    grant._strike()
    assert body.cancelled == ["the lock 'a' was lost"]
    assert grant._leave_body(asyncio.CancelledError) is True
    assert (grant._body, grant._struck, body.left) == (None, False, 1)
    assert grant._leave_body(asyncio.CancelledError) is False
    current(None)
    grant._enter_body()
    assert (grant._body, grant._cancelling) == (None, 0)


@pytest.mark.parametrize(
    ("others", "kind", "own"),
    [
        (0, asyncio.CancelledError, True),
        (-1, asyncio.CancelledError, True),  # the body has taken back one that was there before
        (1, asyncio.CancelledError, False),
        (0, KeyError, False),
        (0, None, False),
    ],
)
def test_a_cancellation_by_others_is_no_loss(tasks: Colour, current: Any, others: int, kind: Any, own: bool) -> None:
    grant, body = tasks.grant(), Body(cancelling=1)
    current(body)
    grant._enter_body()
    current(None)
    grant._strike()
    body.left += others
    assert grant._leave_body(kind) is own
    assert body.left == 1 + others


def test_a_body_that_runs_is_cancelled_soon_and_one_that_is_done_never(tasks: Colour, current: Any) -> None:
    grant, body = tasks.grant(), Body()
    current(body)
    grant._enter_body()
    grant._strike()
    assert (body.cancelled, grant._struck, body.soon) == ([], False, [grant._strike])
    assert grant._leave_body(asyncio.CancelledError) is False
    assert body.left == 0
    other = Body(done=True)
    grant._body = other
    grant._strike()
    assert (other.cancelled, other.soon, grant._struck) == ([], [], False)


def test_the_outermost_handle_is_the_body_of_the_hold(tasks: Colour, current: Any) -> None:
    hold, body = tasks.grant(), Body()
    outer, inner = tasks.reentry(hold), tasks.reentry(hold)
    assert outer._leave_body(asyncio.CancelledError) is False
    current(body)
    outer._enter_body()
    inner._enter_body()
    assert (outer._outermost, inner._outermost, hold._body) == (True, False, body)
    current(None)
    hold._strike()
    assert inner._leave_body(asyncio.CancelledError) is False
    assert tasks.reentry(hold)._leave_body(asyncio.CancelledError) is False, "it was never entered"
    assert hold._body is body
    assert outer._leave_body(asyncio.CancelledError) is True
    hold._body = body
    outer._enter_body()
    assert outer._outermost is False


def test_every_one_of_several_leaves_its_body(tasks: Colour, current: Any) -> None:
    grants = [tasks.grant(id) for id in "ab"]
    current(Body())
    both = tasks.several(*grants)
    both._enter_body()
    assert all(grant._body for grant in grants)
    current(None)
    grants[0]._strike()
    assert both._leave_body(asyncio.CancelledError) is True
    assert [grant._body for grant in grants] == [None, None]


@pytest.mark.parametrize("struck", [False, True])
def test_who_was_cancelled_for_a_loss_gets_the_loss(tasks: Colour, current: Any, struck: bool) -> None:
    grant, body = tasks.grant(), Body()
    current(body)
    grant._enter_body()
    current(None)
    if struck:
        grant._strike()
    grant._deadline = NOW
    error = asyncio.CancelledError()

    if struck:
        with pytest.raises(LockLost) as told:
            tasks.do(of_tasks.leave(grant, [], type(error), error, None))
        assert told.value.__cause__ is error
    else:
        tasks.do(of_tasks.leave(grant, [], type(error), error, None))
        assert "was lost" in error.__notes__[0]


@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("awaited", [True, False])
def test_a_store_for_tasks_answers_at_once_or_is_awaited(tasks: Colour, answer: bool, awaited: bool) -> None:
    async def later() -> bool:
        return answer

    tasks.session.aleave_now = lambda claim: later() if awaited else answer
    assert tasks.do(tasks.grant().release()) is answer
    assert tasks.asked == []
    assert tasks.told == (["released"] if answer else ["lost"])


def test_what_is_lost_is_not_taken_out_on_the_fast_path(tasks: Colour) -> None:
    grant = tasks.grant()
    grant._deadline = NOW
    tasks.session.aleave_now = lambda claim: 1 / 0
    assert tasks.do(grant.release()) is False
    assert tasks.asked == ["leave a"]


@pytest.mark.parametrize("answer", [True, False])
def test_a_release_that_is_cancelled_comes_to_its_end_first(tasks: Colour, answer: bool) -> None:
    async def cancelled() -> bool:
        raise asyncio.CancelledError("its own")

    grant = tasks.grant()
    tasks.session.aleave_now = lambda claim: cancelled()
    tasks.answers["leave"] = answer
    with pytest.raises(asyncio.CancelledError):
        tasks.do(grant.release())
    assert (grant._state, tasks.asked, tasks.told) == ("released", ["leave a"], ["released"])


def test_a_claim_that_leaves_is_known_to_whoever_closes_and_a_cancellation_waits(tasks: Colour) -> None:
    grant = tasks.grant()
    seen: list[Any] = []

    async def main() -> None:
        task = asyncio.ensure_future(grant.release())

        def answer() -> bool:
            seen.append(dict(tasks.session.leaving))
            task.cancel()
            return True

        tasks.answers["leave"] = answer
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert (grant._state, tasks.told) == ("released", ["released"])
    assert (seen, tasks.session.leaving) == ([{"a": ("its loop", grant._claim)}], {})
