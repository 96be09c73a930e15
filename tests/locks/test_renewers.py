"""The threads that renew: how many there are, and that a node which hangs holds back no other."""

import threading
from collections.abc import Iterator

import pytest

from interlock.core.claims import Claim, LockSpec
from interlock.client.base import BaseGrant
from interlock.locks.sync import renewers
from interlock.locks.sync.renewers import MOST_THERE, Renewers
from interlock.testing.waiting import eventually


def grant(node: str, ends: int = 0) -> BaseGrant:
    """Return a grant that is renewed at a node."""
    return BaseGrant((Claim(f"{node} {ends}", LockSpec("\0door", label=node)), 1, ends), True, None)


class House:
    """Renewers whose requests to the node "slow" hang until the gate is open."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked: list[list[str]] = []
        self.threads: set[threading.Thread] = set()
        self.answered = 0  # also counted by a thread that ends
        self.wanted = True
        self.renewers: Renewers[BaseGrant] = Renewers(
            lambda claim: claim.spec.label, self._renew, self._done, lambda: self.wanted
        )

    def _renew(self, grants: list[BaseGrant]) -> None:
        self.threads.add(threading.current_thread())
        self.asked.append([each.id for each in grants])
        if grants[0].id.startswith("slow"):
            self.gate.wait(20)

    def _done(self) -> None:
        self.answered += 1

    def alive(self) -> int:
        """Return how many threads there are, at work or not."""
        return len(self.renewers._threads)


@pytest.fixture
def house() -> Iterator[House]:
    """A house whose threads end with the test."""
    house = House()
    yield house
    house.wanted = False
    house.gate.set()
    house.renewers.wake_all()
    eventually(lambda: house.alive() == 0)


def test_a_node_that_hangs_keeps_few_threads_and_holds_back_no_other(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewers, "HANGS", 0.0)  # each request is late at once
    for number in range(MOST_THERE + 1):
        house.renewers.hand_over([grant("slow", number)])
        eventually(lambda: len(house.asked) == min(number + 1, MOST_THERE))  # noqa: B023 - asked at once
    assert house.renewers.behind
    house.renewers.hand_over([grant("quick"), grant("swift")])
    eventually(lambda: {"quick 0", "swift 0"} <= {each[0] for each in house.asked})
    assert len([each for each in house.asked if each[0].startswith("slow")]) == MOST_THERE
    house.gate.set()
    eventually(lambda: [f"slow {MOST_THERE}"] in house.asked)
    eventually(lambda: house.alive() == 1)
    assert not house.renewers.behind


def test_who_is_due_while_a_request_is_under_way_waits_for_its_thread(house: House) -> None:
    house.renewers.hand_over([grant("slow", 1)])
    eventually(lambda: house.asked == [["slow 1"]])
    house.renewers.hand_over([grant("slow", 3)])
    house.renewers.hand_over([grant("slow", 2)])
    assert house.renewers.behind
    house.gate.set()
    eventually(lambda: house.asked[1:] == [["slow 2", "slow 3"]])
    assert len(house.threads) == 1
    assert not house.renewers.behind


def test_many_are_asked_for_in_portions_and_an_answer_is_noted_before_the_next(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewers, "AT_ONCE", 2)
    house.renewers.hand_over([grant("quick", ends) for ends in (5, 4, 3, 2, 1)])
    eventually(lambda: house.answered >= 3)
    assert house.asked == [["quick 1", "quick 2"], ["quick 3", "quick 4"], ["quick 5"]]


def test_a_thread_that_is_not_wanted_ends_and_says_so(house: House) -> None:
    house.renewers.hand_over([grant("quick")])
    eventually(lambda: house.answered == 1)
    house.wanted = False
    house.renewers.wake_all()
    eventually(lambda: house.alive() == 0)
    eventually(lambda: house.answered == 2)
    house.renewers.hand_over([grant("quick", 1)])
    eventually(lambda: ["quick 1"] in house.asked)
