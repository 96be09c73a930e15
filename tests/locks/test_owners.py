"""Who holds what by one lock object, what ends a hold of a re-entrant lock, and who is named to those who wait."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from interlock.core.claims import Claim, ClaimView, LockSpec
from interlock.core.errors import StoreError
from interlock.locks import busy
from interlock.locks.blocks import somebody
from interlock.client.base import MOST_KEYS, LastHolders, time_is_over
from interlock.client.base import LOST, RELEASED, BaseGrant
from interlock.locks.owners import FEW, BaseReentry, Handles, Holds, Owned
from interlock.testing.waiting import collected


def grant(id: str = "a") -> BaseGrant:
    """Return a grant that is held."""
    return BaseGrant((Claim(id, LockSpec("\0door")), 1, float("inf")), True, None)


def over(id: str = "a") -> BaseGrant:
    """Return a grant that was released."""
    released = grant(id)
    released._state = RELEASED
    return released


def test_the_last_one_that_is_not_released_is_the_one_to_release() -> None:
    owned: Owned[BaseGrant] = Owned()
    first, second = grant(), grant()
    owned._keep("ann", first)
    owned._keep("ann", second)
    assert owned._last("ann") is second
    second._state = RELEASED
    assert owned._last("ann") is first
    assert owned._last("bob") is None
    owned._keep("ann", third := grant())
    assert owned._held == {"ann": [first, third]}
    owned._forget("bob", third)
    assert owned._held == {"ann": [first]}, "whoever releases it, it is nobody's any more"
    owned._forget("ann", first)
    assert owned._held == {}


def test_the_end_of_a_with_is_that_of_what_was_entered() -> None:
    owned: Owned[BaseGrant] = Owned()
    entered, acquired, last = grant(), grant(), grant()
    entered._block = somebody
    last._block = lambda: True
    assert owned._entered_by("ann") is None
    for each in (acquired, entered, last):
        owned._keep("ann", each)
    assert owned._entered_by("ann") is entered
    owned._forget("ann", entered)
    assert owned._entered_by("ann") is acquired
    owned._forget("ann", acquired)
    assert owned._entered_by("ann") is last


def test_owners_that_hold_nothing_any_more_are_forgotten_when_there_are_many() -> None:
    owned: Owned[BaseGrant] = Owned()
    held = [grant(), grant()]
    for number, each in enumerate([*held, *(over() for _ in range(FEW - 2))]):
        owned._keep(number, each)
    assert len(owned._held) == FEW
    owned._keep("ann", last := grant())
    assert owned._held == {0: held[:1], 1: held[1:], "ann": [last]}
    for number in range(FEW + 1):
        owned._keep(f"bob {number}", over())
    assert len(owned._held) == FEW + 4, "not before there are as many again"
    owned._keep("eve", over())
    assert set(owned._held) == {0, 1, "ann", "eve"}


def test_a_hold_is_found_while_somebody_has_a_handle_on_it() -> None:
    holds: Holds[BaseGrant] = Holds()
    hold, others = grant(), [grant() for _ in range(FEW - 1)]
    holds.add("door", "ann", hold)
    for number, each in enumerate(others):
        holds.add("door", number, each)
    assert holds.find("door", "ann") is hold
    assert holds.find("door", "bob") is None
    with collected():
        del each
        others.clear()
        gc.collect()
    assert holds.find("door", 0) is None
    holds.add("gate", "ann", hold)
    assert list(holds._refs) == [("door", "ann"), ("gate", "ann")]


def test_the_last_handle_ends_the_hold_and_none_joins_it_then() -> None:
    first, second, third = grant(), grant(), grant()
    handles = Handles(first)
    assert handles.add(second) is True
    assert handles.drop(first) is False
    assert handles() is second
    assert handles.drop(second) is True
    assert handles.add(third) is False
    assert handles.drop(second) is True


def test_a_handle_whose_block_was_left_without_a_release_does_not_count() -> None:
    first, left = grant(), grant()
    handles = Handles(first)
    handles.add(left)
    left._block = lambda: None
    assert handles.drop(first) is True


def view(thread: str, state: Any = "using", label: str = "") -> ClaimView:
    """Return a claim as others see it."""
    return ClaimView("door", thread, state, 1, 1, 1, "host", 7, thread, label, 0.0, 30.0)


class Line:
    """A store whose line can be looked at, or not."""

    def __init__(self) -> None:
        self.looked: list[str] = []
        self.views: list[ClaimView] = [view("Ann"), view("Bob", "pending")]

    def look(self, key: str) -> Iterator[Any]:
        """Return who is in line."""
        self.looked.append(key)
        if not self.views:
            raise StoreError("away")
        return self.views
        yield


def test_the_line_is_looked_at_once_a_second_however_many_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    last, line = LastHolders(), Line()

    def seen(now: float, key: str = "door") -> list[str]:
        monkeypatch.setattr(busy, "monotonic", lambda: now)
        try:
            next(last.of(line, key))  # type: ignore[arg-type]
        except StopIteration as ended:
            return [each.thread for each in ended.value]
        raise AssertionError("it asked for something")

    assert seen(0.0) == ["Ann"]
    line.views = []
    assert seen(0.99) == ["Ann"]
    assert len(line.looked) == 1
    assert seen(1.0) == [], "it can't be looked at"
    line.views = [view("Eve")]
    assert seen(1.0) == ["Eve"]
    for number in range(MOST_KEYS - 1):
        seen(1.0, str(number))
    assert len(last._seen) == MOST_KEYS
    seen(1.0, "one more")
    assert len(last._seen) == 1


@pytest.mark.parametrize(
    ("holders", "yourself", "said"),
    [
        ([], False, "within 2.5 s: somebody holds it; wait longer (timeout=), or see who with `interlock show`"),
        ([view("A", label="x")], False, "A 'x' of process 7 on host holds it; wait longer (timeout=)"),
        ([view("A"), view("B")], False, "A of process 7 on host and B of process 7 on host holds it"),
        ([view("A"), view("B"), view("C")], False, "B of process 7 on host and 1 more holds it"),
        ([view("A")], True, "the caller itself holds it; release it first, or use rlock()"),
    ],
)
def test_who_waited_in_vain_is_told_who_holds_it(holders: list[ClaimView], yourself: bool, said: str) -> None:
    error = time_is_over("door", 2.5, holders, yourself)
    assert said in str(error)
    assert (error.name, error.timeout, error.holders) == ("door", 2.5, tuple(holders))
    assert "within 0 s" in str(time_is_over("door", None))


def test_who_is_asked_for_nothing_is_told_that_somebody_holds_it() -> None:
    error = time_is_over("door", None)
    assert str(error) == (
        "the lock 'door' was not obtained within 0 s: somebody holds it; wait longer (timeout=), or see who with "
        "`interlock show`"
    )
    assert (error.name, error.timeout, error.holders) == ("door", None, ())
    five = time_is_over("door", None, [view(each) for each in "ABCDE"])
    assert "A of process 7 on host and B of process 7 on host and 3 more holds it" in str(five)


def test_lines_that_were_looked_at_are_forgotten_also_when_there_are_more_than_there_should_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    last, line = LastHolders(), Line()
    for key in "abc":  # several threads may add one at once
        list(last.of(line, key))  # type: ignore[arg-type]
    monkeypatch.setattr(busy, "MOST_KEYS", 2)
    list(last.of(line, "d"))  # type: ignore[arg-type]
    assert list(last._seen) == ["d"]
    assert MOST_KEYS == 64


def test_what_is_over_or_lost_is_dropped_when_its_owner_acquires_again() -> None:
    owned: Owned[BaseGrant] = Owned()
    first, second, third, entered = grant(), grant(), grant(), over()
    entered._block = somebody
    for each in (first, second, entered, third):
        owned._keep("ann", each)
    second._state, third._state = LOST, RELEASED
    owned._keep("ann", last := grant())
    assert owned._held["ann"] == [first, second, entered, last], "a loss behind another one is still to be told"
    first._state = LOST
    owned._keep("ann", newest := grant())
    assert owned._held["ann"] == [entered, last, newest]


def test_only_what_was_left_by_its_own_block_is_abandoned() -> None:
    owned: Owned[BaseGrant] = Owned()
    free, inside, left = grant(), grant(), grant()
    inside._block, left._block = (lambda: True), (lambda: None)
    for each in (free, inside, left):
        owned._keep("ann", each)
    assert owned._abandoned("ann") == [left]
    assert owned._abandoned("bob") == []
    assert owned._entered_by("ann") is free
    owned._keep("ann", other := grant())
    assert owned._entered_by("ann") is other, "the last one of a kind"
    free._block = other._block = somebody
    assert owned._entered_by("ann") is other
    free._block = other._block = lambda: True
    assert owned._entered_by("ann") is other


class Raced(BaseGrant):
    """A grant that another thread ends just when it is looked at."""

    race: Any = None

    @property
    def _over(self) -> bool:
        """Let the other thread be faster."""
        self.race()
        return True


def test_another_thread_that_is_faster_takes_nothing_of_the_owner() -> None:
    owned: Owned[BaseGrant] = Owned()
    owned._keep("ann", raced := Raced((Claim("a", LockSpec("\0door")), 1, float("inf")), True, None))
    raced.race = lambda: owned._forget("bob", raced)
    owned._keep("ann", last := grant())
    assert owned._held == {"ann": [last]}


def test_owners_whose_grants_are_all_lost_are_forgotten_and_those_with_one_are_not() -> None:
    owned: Owned[BaseGrant] = Owned()
    lost, both = grant(), [grant(), grant()]
    owned._keep("ann", lost)
    for each in both:
        owned._keep("bob", each)
    lost._state = both[0]._state = LOST
    owned._tidy()
    assert owned._held == {"bob": both}
    assert owned._many == FEW + 2
    for number in range(9):
        owned._keep(number, grant())
    owned._tidy()
    assert owned._many == FEW + 20
    owned._many = 3  # as if several threads had added one at once
    both[1]._state = LOST
    owned._keep("eve", grant())
    assert "bob" not in owned._held


def test_whoever_releases_a_grant_takes_it_from_its_owner_and_from_nobody_else() -> None:
    owned: Owned[BaseGrant] = Owned()
    grants = {owner: grant() for owner in ("ann", "bob", "eve")}
    for owner, each in grants.items():
        owned._keep(owner, each)
    owned._forget("ann", grants["eve"])
    assert owned._held == {"ann": [grants["ann"]], "bob": [grants["bob"]]}
    owned._forget("ann", grants["eve"])
    owned._forget("ann", grants["ann"])
    assert owned._held == {"bob": [grants["bob"]]}


def test_holds_that_are_over_are_looked_for_when_there_are_many_again() -> None:
    holds: Holds[BaseGrant] = Holds()
    kept = [grant() for _ in range(10)]
    for number, each in enumerate(kept):
        holds.add("door", number, each)
    for number in range(FEW - 10 + 1):
        holds.add("gate", number, one := grant())
    assert list(holds._refs) == [*(("door", number) for number in range(10)), ("gate", 6)]
    assert holds._many == FEW + 2 * 10
    with collected():
        del each
        kept.clear()
    for number in range(7, 32):
        holds.add("gate", number, one)
    assert len(holds._refs) == holds._many == 36
    holds._many = 35  # as if several threads had added one at once
    holds.add("gate", "ann", one)
    assert [place for place in holds._refs if place[0] == "door"] == []


class Reentry(BaseReentry):
    """A handle as either colour has it."""

    __slots__ = ("_grant", "_handles")


def test_a_handle_is_held_until_it_or_its_hold_is_over() -> None:
    hold = grant()
    first, second = Reentry(hold), Reentry(hold)
    assert first._handles is second._handles is hold._block
    assert (first.id, first.fence, first.name) == (hold.id, hold.fence, "door")
    assert (first.held, first.lost, first._over, first.expires_in) == (True, False, False, float("inf"))
    assert repr(first) == f"<Reentry into {hold!r}>"
    first._state = RELEASED
    assert (first.held, first.lost, first._over, first.expires_in) == (False, False, True, 0.0)
    assert (second.held, second._over) == (True, False)
    hold._lose("it was evicted")
    assert (second.held, second.lost, second._over, second.expires_in) == (False, True, False, 0.0)
    assert first.lost is False, "it was released before"
    assert "it was evicted" in str(second._loss())
    second._leaving = True
    assert second._over is True
    hold._leaving, second._leaving = True, False
    assert second._over is True


def test_a_hold_stays_as_long_as_its_first_handle_asked_for() -> None:
    hold = grant()
    first, second = Reentry(hold), Reentry(hold)
    first._stay_at_least(50.0)
    until = hold._free_at
    second._stay_at_least(90.0)
    assert hold._free_at == until > 0
