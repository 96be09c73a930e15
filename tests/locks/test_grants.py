"""A grant and its lease, to the moment: by a clock that the test sets."""

from types import SimpleNamespace
from typing import Any

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.core.errors import InvalidArgument, LockLost, NotHeld
from interlock.locks import grants
from interlock.client.base import BaseGrant, BaseGrants
from interlock.locks.unreleased import kept

ENDS = 130.0


class Clock:
    """The clock and the process id that grants see."""

    now = 100.0
    process = 7


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that stands still at 100."""
    clock = Clock()
    monkeypatch.setattr(grants, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(grants, "pid", lambda: clock.process)
    return clock


def grant(renews: bool = True, told: list[Any] | None = None) -> BaseGrant:
    """Return a grant with a ttl of 30 seconds that ends at 130; `told` gets what it tells."""

    def tell(kind: str, claim: Claim, **about: Any) -> None:
        if told is not None:
            told.append((kind, about))

    made = BaseGrant((Claim("a", LockSpec("app\0door", ttl=30.0)), 5, ENDS), renews, None)
    made._session = SimpleNamespace(tell=tell)
    return made


def test_a_lease_is_held_until_just_before_its_end(clock: Clock) -> None:
    held = grant()
    assert (held.name, held.expires_in, held.held, held.lost) == ("door", 30.0, True, False)
    clock.now = 50.0
    assert held.expires_in == 80.0
    clock.now = 129.5
    assert (held.expires_in, held.held, held.lost) == (0.5, True, False)
    held.check()
    clock.now = ENDS
    assert (held.expires_in, held.lost, held.held) == (0.0, True, False)
    clock.now = 120.0
    assert held.lost is True, "what is lost stays lost"
    with pytest.raises(LockLost, match=r"'door' \(fence 5\) was lost: its lease ended before it was renewed"):
        held.check()
    assert isinstance(held._loss_to_raise(), LockLost)


def test_a_renewal_counts_from_when_it_was_sent_and_the_next_is_due_after_a_third(clock: Clock) -> None:
    held, still = grant(), grant(renews=False)
    assert (held._due, still._due) == (110.0, ENDS)
    held._renewed(109.0)
    assert (held._deadline, held._due) == (139.0, 119.0)
    held._renewed(105.0)
    assert held._deadline == 139.0
    still._renewed(110.0)
    assert (still._deadline, still._due) == (140.0, 140.0)
    held._give_up_renewing()
    assert (held._renews, held._due) == (False, 139.0)


def test_a_forked_child_has_nothing_of_it_and_raises_no_loss(clock: Clock) -> None:
    held, both = grant(), BaseGrants([grant()])
    assert (held.inherited, both.inherited) == (False, False)
    for clock.process in (6, 8):
        assert (held.inherited, held.lost, held.held, held.expires_in) == (True, True, False, 0.0)
        assert (both.inherited, both.lost, both.held) == (True, True, False)
        assert held._loss_to_raise() is None
        assert both._loss_to_raise() is None
        with pytest.raises(LockLost, match="a forked child owns nothing"):
            both.check()


@pytest.mark.parametrize(
    ("removed", "again", "answer", "state"),
    [(True, False, True, "released"), (False, True, True, "released"), (False, False, False, "lost")],
)
def test_what_the_store_answers_to_leave(clock: Clock, removed: bool, again: bool, answer: bool, state: str) -> None:
    leaving = grant()
    leaving._leaving = True
    assert not leaving.held
    assert leaving._left(removed, again) is answer
    assert (leaving._state, leaving._over) == (state, state == "released")
    assert leaving._left(True, True) is False, "once only"


def test_a_lease_that_ends_while_it_leaves_is_no_loss(clock: Clock) -> None:
    leaving = grant()
    leaving._leaving, clock.now = True, ENDS
    assert (leaving.lost, leaving.expires_in, leaving._over) == (False, 0.0, True)
    with pytest.raises(NotHeld, match="was released, or its release has begun"):
        leaving.check()
    lost = grant()
    clock.now = ENDS + 1.0
    assert lost.lost
    assert not lost._over
    lost._leaving = True
    assert lost._over, "who asked to release it has seen the loss"


def test_a_grant_is_in_one_with_only_and_is_given_back_if_that_was_left(clock: Clock) -> None:
    held = grant()
    held._check_before_block()
    assert held.abandoned() is False
    held._block = lambda: "somebody is in it"
    assert held.abandoned() is False
    with pytest.raises(NotHeld, match="released by the `with` that it is in already"):
        held._check_before_block()
    held._block = lambda: None
    assert held.abandoned() is True
    held._keep_for_block()
    assert kept["a"] is held
    clock.now = ENDS
    assert held.abandoned() is False
    assert "a" not in kept, "a loss lets it go"


def test_events_say_for_how_long_it_was_held_if_anybody_heard_when_it_began(clock: Clock) -> None:
    told: list[Any] = []
    held = grant(told=told)
    held._tell("renewed")
    held._tell_acquired(98.0)
    clock.now = 250.0
    held._tell("released", "why")
    assert told == [
        ("renewed", {"fence": 5, "held": None, "reason": ""}),
        ("acquired", {"fence": 5, "started": 98.0}),
        ("released", {"fence": 5, "held": 150.0, "reason": "why"}),
    ]


@pytest.mark.parametrize(("leaving", "kind"), [(False, "lost"), (True, "released")])
def test_the_end_that_a_release_finds_is_told(clock: Clock, leaving: bool, kind: str) -> None:
    told: list[Any] = []
    held = grant(told=told)
    held._leaving = leaving
    held._lose("it was evicted")
    held._tell_end()
    assert [(each, about["reason"]) for each, about in told] == [(kind, "it was evicted")]


def test_several_are_held_while_each_is_and_lost_as_soon_as_one_is(clock: Clock) -> None:
    first, second = grant(), grant()
    both = BaseGrants([first, second])
    assert (both.held, both.lost, both._over, both[1], both[:1], len(both)) == (
        True,
        False,
        False,
        second,
        (first,),
        2,
    )
    both._block = block = lambda: None
    assert first._block is second._block is both._block is block
    assert both.abandoned() is True
    both._block = None
    second._lose("it was evicted")
    assert (both.held, both.lost, both._over) == (False, True, False)
    assert "it was evicted" in str(both._loss_to_raise())
    with pytest.raises(LockLost):
        both._check_before_block()
    second._leaving, first._state = True, "released"
    assert both._over is True


def test_at_least_counts_from_now(clock: Clock) -> None:
    held = grant()
    held._stay_at_least(12.0)
    assert held._free_at == 112.0


def test_a_grant_shows_what_it_is_and_stays_in_its_process(clock: Clock) -> None:
    held = grant()
    assert repr(held) == "<BaseGrant 'door' held fence=5 id=a>"
    held._state = "released"
    assert repr(held) == "<BaseGrant 'door' released fence=5 id=a>"
    with pytest.raises(InvalidArgument, match=r"the grant of 'door' belongs to the process .* send the lock, or the"):
        held.__reduce__()


def test_a_store_that_has_the_claim_no_more_at_the_release_tells_a_loss(clock: Clock) -> None:
    leaving = grant()
    leaving._leaving = True
    kept["a"] = leaving
    assert leaving._left(False, False) is False
    assert leaving._lost_because == "the store no longer had its claim when it was released"
    assert leaving.lost
    assert "a" not in kept
    leaving._lose("again")
    assert leaving._lost_because.startswith("the store no longer"), "the first reason counts"


def test_what_is_over_was_not_lost_and_is_not_kept(clock: Clock) -> None:
    done = grant()
    done._state = "released"
    kept["a"] = done
    done._lose("too late")
    assert (done._state, done.lost, done.held, done.expires_in) == ("released", False, False, 0.0)
    assert done._loss_to_raise() is None
    assert kept.pop("a") is done
    done._block = lambda: None
    assert done.abandoned() is False


def test_several_have_a_fence_for_each_name_and_are_checked_and_kept_each(clock: Clock) -> None:
    first, second = grant(), grant()
    second._claim = Claim("b", LockSpec("app\0gate", ttl=30.0))
    second.id, second.fence = "b", 6
    both = BaseGrants([first, second])
    assert both.fences == {"door": 5, "gate": 6}
    assert list(both) == [first, second]
    assert both._block is None
    both.check()
    both._check_before_block()
    both._keep_for_block()
    assert (kept.pop("a"), kept.pop("b")) == (first, second)
    assert both.abandoned() is False
    assert both._loss_to_raise() is None
    second._state = "released"
    assert (both.held, both.lost, both._over) == (False, False, False)
    with pytest.raises(NotHeld, match="'gate'"):
        both.check()


def test_a_loss_is_logged_with_name_fence_and_reason(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    lost = grant(told=(told := []))
    lost._lose("it was evicted")
    lost._tell_end()
    assert [each.getMessage() for each in caplog.records] == ["the lock 'door' (fence 5) was lost: it was evicted"]
    assert told == [("lost", {"fence": 5, "held": None, "reason": "it was evicted"})]
