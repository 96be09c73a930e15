"""The round trip of `doctor`: what it does to the line, and what it finds wrong with a store."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock.core.claims import Claim
from interlock.core.effects import FRESH_ID, NOW, Before
from interlock.core.errors import StoreError
from interlock.core.queue import REFUSED, EnterResult
from interlock.locks.doctor import WAIT_LIMIT, round_trip


class Line:
    """A store that is right unless the test changes it, and what it was asked for."""

    def __init__(self) -> None:
        self.holders: list[str] = []
        self.asked: list[tuple[str, str]] = []
        self.waits: list[bool] = []
        self.keys: set[str] = set()
        self.fences = iter((5, 6, 7))
        self.full: Callable[[], bool] = lambda: bool(self.holders)
        self.seen: Callable[[], list[str]] = lambda: self.holders

    def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Iterator[Any]:
        """Let it in if nobody is."""
        self.asked.append(("enter", claim.id))
        self.waits.append(wait)
        self.keys.add(claim.spec.key)
        if self.full():
            return REFUSED
        self.holders.append(claim.id)
        return EnterResult("using", next(self.fences))
        yield

    def leave(self, claim: Claim) -> Iterator[Any]:
        """Let it out."""
        self.asked.append(("leave", claim.id))
        self.holders.remove(claim.id)
        return True
        yield

    def look(self, key: str) -> Iterator[Any]:
        """Show who is in."""
        self.asked.append(("look", key))
        return [type("View", (), {"id": id}) for id in self.seen()]
        yield


def found(line: Any, moments: list[float] | None = None) -> list[tuple[str, str, str]]:
    """Let the doctor examine a store; each look at the clock takes half a second.

    Args:
        line: the store.
        moments: gets the ends of leases and of waits, as they are asked about.
    """
    op = round_trip(line, "app")
    clock, ids, reply = 1.0, iter("nabcde"), None
    try:
        while True:
            asked, reply = op.send(reply), None
            if asked is NOW:
                reply, clock = clock, clock + 0.5
            elif asked is FRESH_ID:
                reply = next(ids)
            elif isinstance(asked, Before):
                reply = clock < asked.moment
                if moments is not None:
                    moments.append(asked.moment)
    except StopIteration as ended:
        return [tuple(check) for check in ended.value]


def test_a_store_that_is_right_is_found_right_and_left_as_it_was() -> None:
    line = Line()
    assert found(line) == [
        ("round trip", "ok", "acquire, look, refuse, release and acquire again took 2000.0 ms"),
        ("fences", "ok", "increase: 5, 6"),
    ]
    looked = ("look", "app\0interlock doctor n")
    assert line.asked == [("enter", "a"), looked, ("enter", "b"), ("leave", "a"), ("enter", "c"), ("leave", "c")]
    assert line.keys == {"app\0interlock doctor n"}
    assert line.waits == [True, False, True], "the one who is to be refused only tries"
    assert WAIT_LIMIT == 5.0


def test_a_store_that_lets_two_in_is_not_to_be_used() -> None:
    line = Line()
    line.full = lambda: False
    assert found(line) == [("round trip", "fail", "the store let two in: do not use it")]
    assert line.holders == []


@pytest.mark.parametrize(
    ("entered", "said"),
    [
        (0, "a lock that nobody holds was not obtained within 5 s"),
        (1, "a lock that was released was not obtained again"),
    ],
)
def test_a_store_that_lets_nobody_in_fails(entered: int, said: str) -> None:
    line = Line()
    line.full = lambda: bool(line.holders) or len([each for each in line.asked if each[0] == "leave"]) >= entered
    assert found(line) == [("round trip", "fail", said)]
    assert line.holders == []


def test_a_claim_that_does_not_show_and_fences_that_do_not_rise_fail() -> None:
    line = Line()
    line.seen = lambda: ["x", *line.holders]
    line.fences = iter((6, 5))
    assert found(line) == [
        ("round trip", "fail", "the claim a does not show in its line: ['x', 'a']"),
        ("fences", "fail", "do not increase: 6, then 5"),
    ]
    line = Line()
    line.seen = list
    assert found(line)[0] == ("round trip", "fail", "the claim a does not show in its line: []")
    line = Line()
    line.fences = iter((5, 5))
    assert found(line)[1] == ("fences", "fail", "do not increase: 5, then 5")


def test_a_store_that_fails_says_why_and_its_claim_is_taken_out() -> None:
    line = Line()

    def failing() -> list[str]:
        raise StoreError("away")

    line.seen = failing
    assert found(line) == [("round trip", "fail", "acquire and release failed: away")]
    assert line.holders == []


def test_an_acquire_waits_five_seconds_and_a_try_one() -> None:
    class Away(Line):
        def enter(self, claim: Claim, wakeup: Any, wait: bool, again: bool) -> Iterator[Any]:
            """Have the first one in, and be busy for the others."""
            if self.asked:
                return EnterResult("busy", look_again=0.0, asked=False)
            return (yield from super().enter(claim, wakeup, wait, again))

    moments: list[float] = []
    assert found(Away(), moments) == [("round trip", "fail", "a lock that was released was not obtained again")]
    assert list(dict.fromkeys(moments)) == [1.5 + 30.0, 2.0 + 1.0, 3.0 + 5.0]
