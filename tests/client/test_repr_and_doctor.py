"""What is shown of objects, and what the doctor says of a store that does not keep its promises."""

from typing import Any

import pytest

from interlock.core.queue import REFUSED
from interlock.testing.actors import Actor
from interlock.testing.faults import Around
from interlock.testing.store_fixture import ContractWorld
from interlock.testing.waiting import eventually


def test_a_candidate_shows_whether_it_leads(world: ContractWorld, locks: Any, ann: Actor) -> None:
    election = locks.election(world.name, on_elected=lambda it: shown.append(repr(it)))
    shown, gate = [repr(election)], world.gate()
    standing = ann.start_within(election, gate.wait)
    for state in ("does not stand", "leads"):
        assert f"{world.name!r} {state} on MemoryStore" in eventually(lambda: shown and shown.pop(0))
    gate.open()
    standing.result(20)


class Lying(Around):
    """A store that answers one step in its own way."""

    def __init__(self, store: Any, step: str, lie: Any) -> None:
        super().__init__(store)
        self.step, self.lie = step, lie

    def after(self, step: str, args: Any, answer: Any) -> Any:
        return self.lie(answer) if step == self.step else answer


@pytest.mark.parametrize(
    ("step", "lie", "said"),
    [
        ("enter", lambda answer: answer._replace(fence=7), "Fences do not increase: 7, then 7"),
        ("enter", lambda answer: answer._replace(state="using", fence=7), "one lock to two holders"),
        ("enter", lambda answer: REFUSED, "Acquire and release failed"),
        ("look", lambda answer: [], "is missing in its line"),
    ],
    ids=["fence", "two", "none", "line"],
)
def test_the_doctor_tells_on_a_store_that_does_not_exclude(
    world: ContractWorld, ann: Actor, step: str, lie: Any, said: str
) -> None:
    locks, _ = world.connect_with(lambda store: Lying(store, step, lie))
    last = ann.do(locks.doctor)[-1]
    assert (last.status, said in last.detail) == ("fail", True), last
