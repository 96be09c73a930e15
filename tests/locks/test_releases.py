"""The end of a grant, of threads and of tasks: what a release answers, tells and leaves behind, whatever happens."""

import asyncio
from collections.abc import Callable, Iterator
from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.locks import grants as of_both
from interlock.locks.aio import grants as of_tasks
from interlock.locks.aio.grants import AsyncGrant, AsyncGrants, AsyncReentry
from interlock.locks.sync import grants as of_threads
from interlock.locks.sync.grants import Grant, Grants, Reentry
from interlock.locks.unreleased import kept
from interlock.runtime.sync import run
from tests.support.spied_store import away

NOW, ENDS, TTL = 100.0, 130.0, 30.0


class Colour:
    """Grants of threads or of tasks with a store, a watchdog and a session that note what they are asked.

    Attributes:
        asked: what the store was asked, and the watchdog.
        answers: what the store answers, or raises.
        told: what those were told who listen.
    """

    def __init__(self, tasks: bool, clock: SimpleNamespace) -> None:
        self.tasks = tasks
        self.clock = clock
        self.asked: list[str] = []
        self.answers: dict[str, Any] = {"leave": True, "renew": True}
        self.told: list[str] = []
        self.watched: dict[str, Any] = {}
        self.watchdog: Any = SimpleNamespace(
            add=lambda grant: self.watched.update({grant.id: grant}),
            remove=lambda grant: self.watched.pop(grant.id, None) is not None,
            release_later=lambda grant: self.asked.append(f"later {grant.id}"),
            lost=lambda grant: self.asked.append(f"lost {grant.id}"),
            loop="its loop",
        )
        self.session: Any = SimpleNamespace(
            watchdog=self.watchdog,
            leave_now=None,
            aleave_now=None,
            listeners={"somebody": None},
            leaving={},
            tell=lambda kind, claim, **about: self.told.append(kind),
            leave=lambda claim: run(self.session.store.leave(claim)),
            store=SimpleNamespace(leave=self._leave, renew=self._renew),
        )

    def _answer(self, what: str) -> Any:
        answer = self.answers[what]
        if isinstance(answer, BaseException):
            raise answer
        return answer() if callable(answer) else answer

    def _leave(self, claim: Claim) -> Any:
        self.asked.append(f"leave {claim.id}")
        return self._answer("leave")
        yield

    def _renew(self, claims: Any) -> Any:
        self.asked.append(f"renew {claims[0].id}")
        return [self._answer("renew")]
        yield

    def grant(self, id: str = "a") -> Any:
        """Return a grant under watch whose lease ends at 130."""
        kind: Any = AsyncGrant if self.tasks else Grant
        made = kind((Claim(id, LockSpec(f"\0{id}", ttl=TTL)), 5, ENDS), True, None)
        made._session, made._owner = self.session, None
        if self.tasks:
            made._watchdog, made._body, made._struck = self.watchdog, None, False
        self.watched[id] = made
        return made

    def reentry(self, hold: Any) -> Any:
        """Return a handle on a hold."""
        return (AsyncReentry if self.tasks else Reentry)(hold)

    def several(self, *grants: Any) -> Any:
        """Return grants as one."""
        return (AsyncGrants if self.tasks else Grants)(grants)

    def do(self, answer: Any) -> Any:
        """Return what a method of either colour answers."""
        if not isawaitable(answer):
            return answer

        async def main() -> Any:
            return await answer

        return asyncio.run(main())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """A clock that stands at 100."""
    clock = SimpleNamespace(now=NOW)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(of_threads, "monotonic", clock.monotonic)
    monkeypatch.setattr(of_tasks, "time", clock)
    monkeypatch.setattr(of_both, "time", clock)
    yield clock
    kept.clear()


@pytest.fixture(params=["threads", "tasks"])
def colour(request: pytest.FixtureRequest, clock: SimpleNamespace) -> Colour:
    """Both colours."""
    return Colour(request.param == "tasks", clock)


@pytest.fixture
def threads(clock: SimpleNamespace) -> Colour:
    """Grants of threads."""
    return Colour(False, clock)


@pytest.fixture
def tasks(clock: SimpleNamespace) -> Colour:
    """Grants of tasks."""
    return Colour(True, clock)


def test_a_release_takes_the_claim_out_once(colour: Colour) -> None:
    grant = colour.grant()
    kept["a"] = grant
    assert colour.do(grant.release()) is True
    assert (grant._state, colour.asked, colour.told) == ("released", ["leave a"], ["released"])
    assert (colour.watched, kept) == ({}, {})
    assert colour.do(grant.release()) is False
    assert (colour.asked, colour.told) == (["leave a"], ["released"])


def test_a_release_is_told_only_to_who_listens(colour: Colour) -> None:
    colour.session.listeners = {}
    assert colour.do(colour.grant().release()) is True
    assert colour.told == []


@pytest.mark.parametrize("process", [-1, 1 << 40])
def test_a_forked_child_releases_nothing(colour: Colour, process: int) -> None:
    grant = colour.grant()
    grant._pid = process
    assert colour.do(grant.release()) is False
    assert (colour.asked, list(colour.watched)) == ([], ["a"])


@pytest.mark.parametrize(("now", "answer"), [(ENDS - 0.5, True), (ENDS, False), (ENDS + 1, False)])
def test_a_lease_that_ended_is_lost_and_its_claim_leaves_all_the_same(
    colour: Colour, now: float, answer: bool
) -> None:
    grant = colour.grant()
    colour.session.leave_now = lambda claim: None  # the store is busy
    colour.clock.now = now
    assert colour.do(grant.release()) is answer
    assert colour.asked == ["leave a"]
    assert colour.told == (["released"] if answer else ["lost"])
    assert grant._over is True


@pytest.mark.parametrize("watched", [True, False])
def test_what_the_store_no_longer_has_was_lost_which_is_told_once(colour: Colour, watched: bool) -> None:
    grant = colour.grant()
    if not watched:
        colour.watched.clear()  # whoever took it from there tells
    colour.answers["leave"] = False
    assert colour.do(grant.release()) is False
    assert grant._state == "lost"
    assert colour.told == (["lost"] if watched else [])


@pytest.mark.parametrize("watched", [True, False])
def test_a_lost_claim_that_can_not_leave_is_the_business_of_the_store(colour: Colour, watched: bool) -> None:
    grant = colour.grant()
    if not watched:
        colour.watched.clear()
    colour.answers["leave"], colour.clock.now = away(), ENDS
    assert colour.do(grant.release()) is False
    assert colour.told == (["lost"] if watched else [])
    assert colour.watched == {}
    colour.clock.now = NOW
    grant = colour.grant()
    colour.answers["leave"], colour.clock.now = OSError(), ENDS
    with pytest.raises(OSError):
        colour.do(grant.release())


def test_a_release_that_failed_may_be_called_again_and_its_lease_ends(colour: Colour) -> None:
    grant = colour.grant()
    colour.answers["leave"] = away()
    with pytest.raises(StoreError):
        colour.do(grant.release())
    assert (colour.told, colour.watched, grant._state) == ([], {"a": grant}, "held")
    assert (grant.held, grant._renews, grant._due) == (False, False, ENDS)
    assert colour.session.leaving == {}
    colour.answers["leave"] = False  # it was done the first time
    assert colour.do(grant.release()) is True
    assert colour.told == ["released"]


def test_a_plain_call_takes_out_what_is_held_and_a_busy_store_is_waited_for(colour: Colour) -> None:
    plain: list[bool | None] = [True, None]
    colour.session.leave_now = lambda claim: plain.pop(0)
    assert colour.do(colour.grant("a").release()) is True
    assert colour.asked == []
    assert colour.do(colour.grant("b").release()) is True
    assert colour.asked == ["leave b"]
    colour.clock.now = ENDS
    assert colour.do(colour.grant("c").release()) is False
    assert (plain, colour.asked) == ([], ["leave b", "leave c"]), "what is lost is not held"


# -- at_least -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free_at", "asked"),
    [
        (99.0, ["leave a"]),
        (100.0, ["leave a"]),
        (110.0, ["later a"]),
        (130.0, ["later a"]),
        (131.0, ["renew a", "later a"]),
    ],
)
def test_before_its_at_least_a_claim_stays_with_the_watchdog(
    colour: Colour, free_at: float, asked: list[str]
) -> None:
    grant = colour.grant()
    kept["a"] = grant
    grant._free_at = free_at
    assert colour.do(grant.release()) is True
    assert colour.asked == asked
    assert (grant._state, colour.told[-1], kept) == ("released", "released", {})
    assert colour.do(grant.release()) is False


def test_a_claim_that_can_not_be_renewed_does_not_stay(colour: Colour) -> None:
    grant = colour.grant()
    grant._free_at, colour.answers["renew"] = 200.0, False
    colour.do(grant.release())
    assert colour.asked == ["renew a", "lost a", "leave a"]
    over = colour.grant("b")
    over._free_at, colour.clock.now = 200.0, ENDS
    assert colour.do(over.release()) is False
    assert colour.asked[3:] == ["leave b"], "it is not held any more"


# -- renew() ------------------------------------------------------------------------------------------------


def test_a_renewal_counts_from_when_it_was_sent_and_is_told(colour: Colour) -> None:
    grant = colour.grant()
    colour.clock.now = 110.0

    def later() -> bool:
        colour.clock.now = 120.0
        return True

    colour.answers["renew"] = later
    assert colour.do(grant.renew()) is True
    assert (grant._deadline, colour.told) == (140.0, ["renewed"])


def test_a_renewal_of_what_is_gone_loses_it_and_one_that_failed_raises(colour: Colour) -> None:
    grant = colour.grant()
    colour.answers["renew"] = lambda: away()  # an answer for this claim, not an error of the request
    with pytest.raises(StoreError, match="away"):
        colour.do(grant.renew())
    assert grant._deadline == ENDS
    colour.answers["renew"] = False
    assert colour.do(grant.renew()) is False
    assert colour.asked == ["renew a", "renew a", "lost a"]
    colour.do(grant.release())
    assert colour.do(grant.renew()) is False
    assert colour.asked[3:] == ["leave a"], "who has released it asks for nothing"


# -- the handles of a re-entrant lock -----------------------------------------------------------------------


def test_the_last_handle_to_be_released_ends_the_hold(colour: Colour) -> None:
    hold = colour.grant()
    first, second = colour.reentry(hold), colour.reentry(hold)
    assert second._handles.add(second)
    assert colour.do(first.renew()) is True
    assert colour.do(first.release()) is True
    assert (first._state, hold.held, colour.asked) == ("released", True, ["renew a"])
    assert colour.do(first.release()) is False
    assert colour.do(first.renew()) is False
    colour.answers["leave"] = away()
    with pytest.raises(StoreError):
        colour.do(second.release())
    assert second._state == "held"
    colour.answers["leave"] = True
    assert colour.do(second.release()) is True
    assert (second._state, hold._state) == ("released", "released")
    assert colour.asked == ["renew a", "leave a", "leave a"]


def test_a_handle_on_what_is_lost_is_over_when_it_was_released(colour: Colour) -> None:
    hold = colour.grant()
    handle, gone = colour.reentry(hold), colour.reentry(colour.grant("b"))
    colour.answers["leave"] = False
    assert colour.do(gone.release()) is False
    assert gone._state == "held", "its hold tells the loss"
    colour.clock.now = ENDS
    assert handle._over is False
    assert colour.do(handle.release()) is False
    assert (handle._leaving, handle._over, handle._state) == (True, True, "held")
    assert colour.do(handle.renew()) is False
    assert colour.asked == ["leave b"]


def test_a_forked_child_releases_no_handle(colour: Colour) -> None:
    handle = colour.reentry(colour.grant())
    handle._pid = -1
    assert colour.do(handle.release()) is False
    assert (handle._leaving, colour.asked) == (False, [])


# -- several as one -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", ["a", "b", "c", ""])
def test_several_are_released_the_last_one_first_and_were_held_if_each_was(colour: Colour, lost: str) -> None:
    grants = {id: colour.grant(id) for id in "abc"}
    if lost:
        grants[lost]._deadline = NOW
    assert colour.do(colour.several(*grants.values()).release()) is (lost == "")
    assert colour.asked == ["leave c", "leave b", "leave a"]


def test_several_are_released_whatever_fails_and_the_first_failure_is_told(colour: Colour) -> None:
    grants = [colour.grant(id) for id in "abc"]
    failures: list[Any] = [away(), KeyError("another")]

    def fails() -> bool:
        if failures:
            raise failures.pop(0)
        return True

    colour.answers["leave"] = fails
    with pytest.raises(StoreError, match="away"):
        colour.do(colour.several(*grants).release())
    assert [grant._state for grant in grants] == ["released", "held", "held"]


# -- with ---------------------------------------------------------------------------------------------------


def leave(colour: Colour, ends: Any, error: BaseException | None) -> None:
    """Leave a block as `with` does."""
    module: Any = of_tasks if colour.tasks else of_threads
    colour.do(module.leave(ends, [], type(error) if error else None, error, None))


@pytest.mark.parametrize("error", [None, KeyError("its own")])
def test_the_end_of_a_block_raises_the_loss_or_notes_it_at_the_error(colour: Colour, error: Exception | None) -> None:
    lost = colour.grant()
    lost._deadline = NOW
    if error is None:
        with pytest.raises(LockLost, match="'a'"):
            leave(colour, lost, error)
    else:
        leave(colour, lost, error)
        assert "the lock 'a' (fence 5) was lost" in error.__notes__[0]
    fine = ValueError()
    leave(colour, colour.grant("b"), fine)
    leave(colour, colour.several(colour.grant("c"), colour.grant("d")), None)
    assert not hasattr(fine, "__notes__")
    assert colour.asked == ["leave a", "leave b", "leave d", "leave c"]
    released = colour.grant("e")
    colour.do(released.release())
    leave(colour, released, None)
    both = colour.several(colour.grant("f"), colour.grant("g"))
    both[0]._deadline = NOW
    with pytest.raises(LockLost, match="'f'"):
        leave(colour, both, None)


def test_a_grant_is_entered_once_and_only_while_it_is_held(colour: Colour) -> None:
    module: Any = of_tasks if colour.tasks else of_threads
    grant = colour.grant()
    assert colour.do(module.enter_alone(grant)) is grant
    with pytest.raises(NotHeld, match="in already"):
        colour.do(module.enter_alone(grant))
    assert (grant._block is not None, grant._state) == (True, "held")
    assert kept == {}, "of a block that `with` has not noted, nobody finds out whether it was left"


# -- threads ------------------------------------------------------------------------------------------------


def test_an_interrupt_at_the_end_of_a_block_releases_again_and_a_failure_does_not() -> None:
    asked: list[str] = []

    class Ends:
        def __init__(self, error: BaseException) -> None:
            self._error: BaseException | None = error

        def _end(self, block: Any) -> None:
            asked.append(type(self._error).__name__)
            error, self._error = self._error, None
            if error is not None:
                raise error

    for error in (KeyboardInterrupt(), away()):
        with pytest.raises(type(error)):
            of_threads.leave(Ends(error), [], None, None, None)
    assert asked == ["KeyboardInterrupt", "NoneType", "StoreError"]


def test_a_grant_whose_block_is_known_is_kept_until_that_is_left(threads: Colour) -> None:
    grant = threads.grant()
    with grant:
        assert kept == {"a": grant}
    assert kept == {}


def test_a_handle_in_a_block_keeps_its_hold(threads: Colour) -> None:
    hold = threads.grant()
    with threads.reentry(hold):
        assert kept == {"a": hold}
    both = threads.several(threads.grant("b"), threads.grant("c"))
    with both:
        assert list(kept) == ["b", "c"]
    assert kept == {}


def test_an_interrupt_while_a_block_is_entered_releases(threads: Colour) -> None:
    def interrupted(grant: object) -> None:
        raise KeyboardInterrupt

    grant = threads.grant()
    grant.__class__ = type("Spied", (Grant,), {"__slots__": (), "_keep_for_block": interrupted})
    with pytest.raises(KeyboardInterrupt), grant:
        pass
    assert (grant._state, threads.asked) == ("released", ["leave a"])
    lost = threads.grant("b")
    lost._deadline = NOW
    with pytest.raises(LockLost), lost:
        pass
    assert threads.asked == ["leave a"], "who could not enter it has it still"


# -- tasks --------------------------------------------------------------------------------------------------


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
    assert (seen, tasks.session.leaving) == ([{"a": "its loop"}], {})
