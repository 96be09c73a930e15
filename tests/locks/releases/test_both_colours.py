"""A release, of either colour: what leaves the store, who is told, and what a failure leaves to be done."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from interlock.core.errors import LockLost, NotHeld, StoreError
from interlock.locks.aio import grants as of_tasks
from interlock.locks.sync import grants as of_threads
from interlock.locks.unreleased import kept
from tests.support.spied_grants import ENDS, NOW, Colour
from tests.support.spied_store import away


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


@pytest.mark.parametrize("answer", [False, away()])
def test_of_two_who_release_at_once_the_one_that_took_it_out_tells(colour: Colour, answer: Any) -> None:
    grant = colour.grant()

    def other_is_quicker() -> bool:
        colour.answers["leave"] = True
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(lambda: colour.do(grant.release())).result() is True
        if isinstance(answer, StoreError):
            raise answer
        return False

    colour.answers["leave"] = other_is_quicker
    assert colour.do(grant.release()) is False
    assert (grant._state, colour.told) == ("released", ["released"])


@pytest.mark.parametrize("by_plain_call", [True, False])
def test_what_is_released_is_known_to_whoever_closes_before_the_watchdog_forgets_it(
    colour: Colour, monkeypatch: pytest.MonkeyPatch, by_plain_call: bool
) -> None:
    grant, seen = colour.grant(), list[list[str]]()
    watchdog = colour.session.watchdog if hasattr(colour.session, "watchdog") else grant._watchdog
    remove = watchdog.remove
    monkeypatch.setattr(watchdog, "remove", lambda one: (seen.append([*colour.session.leaving]), remove(one))[1])
    if by_plain_call:
        colour.session.leave_now = lambda claim: seen.append([*colour.session.leaving]) is None
    assert colour.do(grant.release()) is True
    assert seen == [["a"]] * (2 if by_plain_call else 1)
    assert colour.session.leaving == {}


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


def test_a_claim_whose_renewal_fails_is_renewed_no_more_and_its_lease_ends(colour: Colour) -> None:
    grant = colour.grant()
    grant._free_at, colour.answers["renew"] = 200.0, away()
    with pytest.raises(StoreError):
        colour.do(grant.release())
    assert (grant._renews, grant._due) == (False, ENDS)
    assert (colour.told, colour.watched) == ([], {"a": grant})


def test_of_two_who_release_before_its_at_least_one_does(colour: Colour) -> None:
    grant = colour.grant()
    grant._free_at = 131.0

    def other_is_quicker() -> bool:
        colour.answers["renew"] = True
        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(lambda: colour.do(grant.release())).result() is True
        return True

    colour.answers["renew"] = other_is_quicker
    assert colour.do(grant.release()) is False
    assert colour.asked == ["renew a", "renew a", "later a"]
    assert colour.told.count("released") == 1


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
