"""What `acquire` asks for, step by step: each request and each pause, with a clock that stands still between them."""

from collections.abc import Iterator
from typing import Any

import pytest

from interlock.core.acquire import LOST_REPLIES, AcquireCall, Held, acquire
from interlock.core.claims import SEPARATOR, Claim, LockSpec
from interlock.core.effects import FRESH_ID, NOW, Before, Sleep, Subscribe, Wait
from interlock.core.errors import StoreError, UnknownOutcome
from interlock.core.queue import BUSY, GIVEN_UP, GONE, OCCUPIED, REFUSED, EnterResult, Granted, Outage
from tests.support.played import played

SPEC = LockSpec(f"app{SEPARATOR}door", ttl=30.0)
CLAIM = Claim("first", SPEC)
FRESH = Claim("b", SPEC)
START = 100.0
USING = EnterResult("using", 7)
PENDING = EnterResult("pending", look_again=1.0)
WAKEUP = "a wake-up"


class Line:
    """A store whose requests and replies are those of the test."""

    def enter(self, *asked: Any) -> Iterator[Any]:
        """Show the request."""
        return (yield ("enter", *asked))

    def leave(self, claim: Claim) -> Iterator[Any]:
        """Show the request."""
        return (yield ("leave", claim))


LINE: Any = Line()


def called(deadline: float | None = None, wait: bool = True, first: EnterResult | None = None) -> AcquireCall:
    """Return a call that began at `START`."""
    return AcquireCall(CLAIM, START, deadline, wait, first)


def acquired(call: AcquireCall, *steps: tuple[Any, Any]) -> Any:
    """Let `acquire` run; as `played`."""
    return played(acquire(LINE, call), *steps)


def enter(claim: Claim = CLAIM, wakeup: Any = None, wait: bool = True, again: bool = False) -> tuple[Any, ...]:
    """Return the request to enter the line."""
    return "enter", claim, wakeup, wait, again


IN_LINE = [(enter(), PENDING), (Subscribe(LINE), WAKEUP), (NOW, 101.0), (enter(CLAIM, WAKEUP, True, True), PENDING)]
"""The first steps of a call without a deadline that waits."""


def test_a_free_lock_is_held_until_a_ttl_after_the_request_was_sent() -> None:
    assert acquired(called(), (enter(), USING), (Before(130.0), True)) == Held(CLAIM, 7, 130.0)


def test_the_fast_paths_answer_is_taken_without_asking_again() -> None:
    assert acquired(called(first=USING), (Before(130.0), True)) == Held(CLAIM, 7, 130.0)


def test_a_grant_that_comes_after_its_lease_is_given_back_and_another_claim_lines_up() -> None:
    again = (enter(FRESH), USING), (Before(161.0), True)
    late = (enter(), USING), (Before(130.0), False), (("leave", CLAIM), True), (FRESH_ID, "b")
    assert acquired(called(), *late, (NOW, 131.0), *again) == Held(FRESH, 7, 161.0)
    assert acquired(called(200.0), *late, (Before(200.0), True), (NOW, 131.0), *again) == Held(FRESH, 7, 161.0)
    assert acquired(called(120.0), *late, (Before(120.0), False)) is None


def test_a_late_grant_that_can_not_be_given_back_is_an_error_at_the_end_of_the_time() -> None:
    late = (enter(), USING), (Before(130.0), False), (("leave", CLAIM), StoreError("away")), (FRESH_ID, "b")
    with pytest.raises(StoreError, match="away"):
        acquired(called(120.0), *late, (Before(120.0), False))
    assert acquired(called(), *late, (NOW, 131.0), (enter(FRESH), REFUSED)) is None


def test_a_waiter_subscribes_looks_once_more_and_waits_with_its_lease_renewed_three_times_a_ttl() -> None:
    told: list[Claim] = []
    call = called()
    call.on_queued = lambda each: told.append(each.claim)
    steps = [*IN_LINE, (Wait(WAKEUP, 1.0, None), None), (NOW, 102.0)]
    slow = EnterResult("pending", look_again=60.0)
    steps += [(enter(CLAIM, WAKEUP, True, True), slow), (Wait(WAKEUP, 10.0, None), None), (NOW, 112.0)]
    steps += [(enter(CLAIM, WAKEUP, True, True), USING), (Before(142.0), True)]
    assert acquired(call, *steps) == Held(CLAIM, 7, 142.0)
    assert told == [CLAIM]
    assert call.wakeup is WAKEUP


def test_a_hand_over_is_taken_without_asking_and_its_lease_counts_from_the_last_request() -> None:
    steps = [*IN_LINE, (Wait(WAKEUP, 1.0, None), Granted("".join(("fir", "st")), 9)), (Before(131.0), True)]
    assert acquired(called(), *steps) == Held(CLAIM, 9, 131.0)


def test_the_hand_over_to_a_claim_of_before_is_no_grant() -> None:
    steps = [*IN_LINE, (Wait(WAKEUP, 1.0, None), Granted("older", 9)), (NOW, 102.0)]
    steps += [(enter(CLAIM, WAKEUP, True, True), USING), (Before(132.0), True)]
    assert acquired(called(), *steps) == Held(CLAIM, 7, 132.0)


def test_a_hand_over_that_comes_after_the_lease_is_not_taken_for_the_next_claim() -> None:
    steps = [
        *IN_LINE,
        (Wait(WAKEUP, 1.0, None), Granted("".join(("fir", "st")), 9)),
        (Before(131.0), False),
        (("leave", CLAIM), True),
    ]
    steps += [(FRESH_ID, "b"), (NOW, 140.0), (enter(FRESH, WAKEUP), USING), (Before(170.0), True)]
    assert acquired(called(), *steps) == Held(FRESH, 7, 170.0)


def test_a_waiter_whose_claim_is_gone_enters_as_a_newcomer_and_tells_again() -> None:
    told: list[Claim] = []
    call = called()
    call.on_queued = lambda each: told.append(each.claim)
    steps = [*IN_LINE[:3], (enter(CLAIM, WAKEUP, True, True), GONE), (FRESH_ID, "b"), (NOW, 103.0)]
    steps += [(enter(FRESH, WAKEUP), PENDING), (Wait(WAKEUP, 1.0, None), None), (NOW, 104.0)]
    steps += [(enter(FRESH, WAKEUP, True, True), USING), (Before(134.0), True)]
    assert acquired(call, *steps) == Held(FRESH, 7, 134.0)
    assert told == [CLAIM, FRESH]


def test_a_busy_store_is_asked_less_and_less_often_and_its_answers_start_no_lease() -> None:
    steps = [(enter(), BUSY), (Sleep(0.0005), None), (NOW, 100.25), (enter(), BUSY), (Sleep(0.0005 + 0.0125), None)]
    steps += [(NOW, 101.0), (enter(), BUSY), (Sleep(0.0005 + 0.02), None), (NOW, 102.0)]
    own = EnterResult("using", 7, asked=False)
    assert acquired(called(), *steps, (enter(), own), (Before(130.0), True)) == Held(CLAIM, 7, 130.0)
    assert acquired(called(), *steps, (enter(), USING), (Before(132.0), True)) == Held(CLAIM, 7, 132.0)
    later = [(enter(), BUSY), (Sleep(0.0005), None), (NOW, 200.1), (enter(), BUSY), (Sleep(0.0005 + 0.02), None)]
    assert acquired(called(), *later, (NOW, 201.0), (enter(), REFUSED)) is None


def test_an_occupied_line_is_entered_with_a_wakeup_and_then_asked_again_after_a_pause() -> None:
    steps = [(enter(), OCCUPIED), (Subscribe(LINE), WAKEUP), (NOW, 101.0)]
    steps += [(enter(CLAIM, WAKEUP), OCCUPIED), (Sleep(1.0), None), (NOW, 102.0)]
    assert acquired(called(), *steps, (enter(CLAIM, WAKEUP), REFUSED)) is None


def test_a_try_sleeps_while_a_neighbour_lowers_its_flag_and_tells_nobody_that_it_waits() -> None:
    told: list[AcquireCall] = []
    call = called(101.0, wait=False)
    call.on_queued = told.append
    steps = [(enter(wait=False), EnterResult("pending", look_again=0.005)), (Before(101.0), True)]
    steps += [(Sleep(0.005), None), (NOW, 100.5), (enter(wait=False, again=True), REFUSED)]
    assert acquired(call, *steps) is None
    assert told == []


def test_at_the_end_of_the_time_the_claim_leaves_once() -> None:
    call = called(105.0)
    assert acquired(call, (enter(), PENDING), (Before(105.0), False), (("leave", CLAIM), True)) is None
    assert call.entered is False
    call = called(105.0)
    with pytest.raises(StoreError, match="away"):
        acquired(call, (enter(), PENDING), (Before(105.0), False), (("leave", CLAIM), StoreError("away")))
    assert call.entered is False
    call = called(105.0)
    assert acquired(call, (enter(), BUSY), (Before(105.0), False)) is None, "what did not enter does not leave"


def test_requests_without_an_answer_are_repeated_three_times_and_then_it_is_an_error() -> None:
    lost = UnknownOutcome("no answer")
    unanswered = [(enter(), lost), (Sleep(0.0005), None), (NOW, START)]
    with pytest.raises(UnknownOutcome, match="the fourth"):
        acquired(called(), *(unanswered * LOST_REPLIES), (enter(), UnknownOutcome("the fourth")))
    # An answer ends the row; the claim may be in the line since, so it leaves at the end.
    call = called(105.0)
    unanswered.insert(1, (Before(105.0), True))
    answered = [(enter(), BUSY), (Before(105.0), True), (Sleep(0.0005), None), (NOW, START)]
    steps = [*(unanswered * LOST_REPLIES), *answered, *unanswered, (enter(), BUSY), (Before(105.0), False)]
    assert acquired(call, *steps, (("leave", CLAIM), True)) is None


def test_claims_without_an_answer_are_followed_by_others_after_longer_and_longer_pauses() -> None:
    def given_up(pause: float) -> list[tuple[Any, Any]]:
        return [(FRESH_ID, "b"), (Sleep(pause), None), (NOW, START)]

    steps = [(enter(), GIVEN_UP), *given_up(0.02), (enter(FRESH), GIVEN_UP), *given_up(0.04)]
    steps += [(enter(FRESH), GIVEN_UP), *given_up(0.08)]
    with pytest.raises(UnknownOutcome, match="no answer to 4 claims in a row"):
        acquired(called(), *steps, (enter(FRESH), GIVEN_UP), (FRESH_ID, "b"))
    assert acquired(called(), *steps, (enter(FRESH), REFUSED)) is None


def test_a_call_that_was_called_off_asks_for_nothing_and_wakes_who_waits() -> None:
    class Wakeup:
        woken = False

        def wake(self) -> None:
            self.woken = True

    call = called()
    call.wakeup = Wakeup()
    call.call_off()
    assert call.wakeup.woken
    with pytest.raises(StoreError, match="closed while it waited for 'door'"):
        acquired(call)


def away(limit: float = 5.0) -> EnterResult:
    """Return the answer of a store that is away."""
    return EnterResult("busy", look_again=0.5, asked=False, outage=Outage(StoreError("away"), limit))


def test_a_store_that_is_away_is_waited_for_as_long_as_it_says_where_there_is_no_deadline() -> None:
    def waits(now: float, pause: float) -> list[tuple[Any, Any]]:
        return [(enter(), away()), (NOW, now), (Sleep(pytest.approx(0.5 + pause)), None), (NOW, now)]

    steps = [*waits(START, 0.0), *waits(105.0, 0.02)]
    with pytest.raises(StoreError, match="away"):
        acquired(called(), *steps, (enter(), away()), (NOW, 105.01))
    # A moment when it was there ends the absence.
    back = [(enter(), BUSY), (Sleep(0.0005 + 0.02), None), (NOW, 105.0)]
    last = [*waits(106.0, 0.02), *waits(110.0, 0.02), (enter(), REFUSED)]
    assert acquired(called(), *steps, *back, *last) is None


def test_a_store_that_is_away_is_asked_again_just_before_the_deadline_and_is_then_the_reason() -> None:
    steps = [
        (enter(), away()),
        (Before(100.4), True),
        (NOW, 100.1),
        (Sleep(pytest.approx(0.305)), None),
        (NOW, 100.4),
    ]
    over = [(enter(), away()), (Before(100.4), False)]
    with pytest.raises(StoreError, match="away"):
        acquired(called(100.4), *steps, *over)
    past = [(enter(), away()), (Before(100.4), True), (NOW, 100.5), (Sleep(pytest.approx(0.02)), None), (NOW, 100.5)]
    with pytest.raises(StoreError, match="away"):
        acquired(called(100.4), *past, *over)


def test_a_waiter_whose_time_is_over_while_the_store_is_away_was_kept_out_by_others() -> None:
    queued = [(enter(), PENDING), (Before(105.0), True), (Subscribe(LINE), WAKEUP), (NOW, 101.0)]
    gone = [(enter(CLAIM, WAKEUP, True, True), away()), (Before(105.0), False)]
    assert acquired(called(105.0), *queued, *gone, (("leave", CLAIM), True)) is None
    with pytest.raises(StoreError, match="away") as raised:
        acquired(called(105.0), *queued, *gone, (("leave", CLAIM), StoreError("no leave")))
    assert str(raised.value.__cause__) == "no leave"


def test_an_answer_of_the_fast_path_is_none_of_the_requests_without_an_answer() -> None:
    lost = UnknownOutcome("no answer")
    steps = [
        (Sleep(0.0005), None),
        (NOW, START),
        *([(enter(), lost), (Sleep(0.0005), None), (NOW, START)] * LOST_REPLIES),
    ]
    with pytest.raises(UnknownOutcome, match="the fourth"):
        acquired(called(first=BUSY), *steps, (enter(), UnknownOutcome("the fourth")))


def test_what_is_known_of_a_call_before_it_begins() -> None:
    for answer, entered in ((None, False), (BUSY, False), (OCCUPIED, False), (REFUSED, False), (PENDING, True)):
        call = called(first=answer)
        assert (call.entered, call.closed, call.wakeup, call.on_queued, call.queued) == (
            entered,
            False,
            None,
            None,
            None,
        )
    assert called(first=USING).entered is True
    assert (LOST_REPLIES, called().owner) == (3, None)


def test_a_claim_that_a_busy_store_may_have_is_taken_out_at_the_end() -> None:
    call = called(105.0)
    steps = [(enter(), UnknownOutcome("no answer")), (Before(105.0), False), (("leave", CLAIM), True)]
    assert acquired(call, *steps) is None


def test_a_call_that_was_not_waiting_is_called_off_without_waking_anybody() -> None:
    call = called()
    call.call_off()
    assert call.closed is True


def test_an_answer_starts_the_row_of_claims_without_one_anew() -> None:
    def given_up(pause: float, claim: Claim = FRESH) -> list[tuple[Any, Any]]:
        return [(enter(claim), GIVEN_UP), (FRESH_ID, "b"), (Sleep(pause), None), (NOW, START)]

    steps = [*given_up(0.02, CLAIM), *given_up(0.04), (enter(FRESH), GONE), (FRESH_ID, "b"), (NOW, START)]
    assert acquired(called(), *steps, *given_up(0.02), (enter(FRESH), REFUSED)) is None


def test_a_short_lease_is_renewed_three_times_a_ttl_too() -> None:
    short = Claim("first", SPEC._replace(ttl=1.5))
    call = AcquireCall(short, START, None, True)
    steps = [
        (enter(short), PENDING),
        (Subscribe(LINE), WAKEUP),
        (NOW, 100.1),
        (enter(short, WAKEUP, True, True), PENDING),
    ]
    steps += [(Wait(WAKEUP, 0.5, None), None), (NOW, 100.6), (enter(short, WAKEUP, True, True), USING)]
    assert acquired(call, *steps, (Before(102.1), True)) == Held(short, 7, 102.1)
