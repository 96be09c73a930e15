"""The automaton of a protocol: which local states are equal, which hidden state is found, renaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import Any

import pytest

from model_checker.automaton import Automaton, Final, HiddenState


def walk(automaton: Automaton, results: list[Any]) -> None:
    """Extract all local states that are reachable with these results."""
    queue, seen = deque([automaton.start]), {automaton.start}
    while queue:
        local = queue.popleft()
        if isinstance(automaton.requests[local], Final):
            continue
        for result in results:
            target = automaton.step(local, result)
            if target not in seen:
                seen.add(target)
                queue.append(target)


@pytest.mark.parametrize("hidden_after", [1, 2, 3])
def test_state_hidden_in_an_object_is_noticed(hidden_after: int) -> None:
    class Counting:
        def __init__(self) -> None:
            self.attempts = 0

        def enter(self) -> Generator[str, None, str]:
            while True:
                yield "attempt"
                self.attempts += 1
                if self.attempts > hidden_after:
                    return "gave up"

    automaton = Automaton(lambda: Counting().enter())
    with pytest.raises(HiddenState, match=r"enter \(test_checker_automaton.py:\d+\)"):
        walk(automaton, [None])


# ---- renaming


def names_and_reaps() -> Generator[Any, Any, None]:
    while True:
        mine = yield "create"
        seen = yield ("list", mine)
        for other in seen:
            if other != mine:
                yield ("reap", other)
        yield ("delete", mine)


def test_renaming_leads_to_the_state_of_the_other_names() -> None:
    automaton = Automaton(names_and_reaps)
    seven = automaton.step(automaton.start, "id7")
    assert "id7" in automaton.mentions(seven)
    assert "id0" not in automaton.mentions(seven)
    zero = automaton.rename(seven, "id7", "id0")
    assert zero == automaton.step(automaton.start, "id0") != seven
    assert automaton.rename(seven, "id8", "id0") == seven
    reaping = automaton.step(seven, ("id5", "id7", "id6"))
    renamed_reaping = automaton.rename(reaping, "id5", "id4")
    assert automaton.requests[renamed_reaping] == ("reap", "id4")
    assert automaton.requests[automaton.step(renamed_reaping, None)] == ("reap", "id6")
    with pytest.raises(ValueError, match="already"):
        automaton.rename(reaping, "id5", "id7")


def test_a_protocol_that_compares_the_order_of_names_is_noticed() -> None:
    def protocol() -> Generator[Any, Any, None]:
        mine = yield "create"
        other = yield "list"
        yield ("before" if mine < other else "after", mine)

    automaton = Automaton(protocol)
    local = automaton.step(automaton.step(automaton.start, "a"), "b")
    with pytest.raises(HiddenState, match="more than the equality"):
        automaton.rename(local, "a", "c")
