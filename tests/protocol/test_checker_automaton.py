"""The automaton of a protocol: what makes two local states one, what is noticed when it is hidden, renaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from proof import Automaton, Final, HiddenState
from proof.runtime import effect


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True, slots=True)
class Ask:
    what: str
    colour: Colour = Colour.RED


class Reply(NamedTuple):
    ok: bool
    claims: tuple[str, ...] = ()


def walk(automaton: Automaton, results: list[Any]) -> None:
    """Extract everything that can be reached with these results."""
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


def test_a_local_state_is_the_position_and_the_live_variables() -> None:
    def protocol() -> Generator[Ask, Reply, None]:
        while True:
            reply = yield Ask("first")
            reply = yield Ask("second", Colour.BLUE if reply.ok else Colour.RED)
            del reply

    automaton = Automaton(protocol)
    walk(automaton, [Reply(True), Reply(False), Reply(True, ("a", "b"))])
    assert len(automaton) == 3  # the answers are read once and then do not matter
    second = automaton.step(automaton.start, Reply(True))
    assert automaton.requests[second] == Ask("second", Colour.BLUE)
    assert automaton.history(second) == (Reply(True),)
    assert automaton.where(second).startswith("test_a_local_state_is")
    assert automaton.where(second).split("(")[1].startswith("test_checker_automaton.py:")


def test_a_variable_that_is_still_read_keeps_states_apart() -> None:
    def protocol() -> Generator[str, Any, Any]:
        kept = yield "first"
        yield "second"
        return kept

    automaton = Automaton(protocol)
    walk(automaton, [1, True, "1"])
    finals = [request for request in automaton.requests if isinstance(request, Final)]
    assert len(finals) == 3  # 1 and True are not one answer
    assert automaton.where(len(automaton) - 1) == "its end"


def test_exceptions_are_thrown_and_equal_ones_lead_to_one_state() -> None:
    def protocol() -> Generator[Any, Any, str]:
        try:
            yield "try"
        except ValueError as error:
            yield "caught", error
            return str(error)
        except BaseException:
            yield "clean up"
            raise
        return "no exception"

    automaton = Automaton(protocol)
    caught = automaton.step(automaton.start, ValueError("lost"))
    assert automaton.requests[caught][0] == "caught"
    assert automaton.step(automaton.start, ValueError("lost")) == caught
    assert automaton.step(automaton.start, ValueError("other")) != caught
    assert automaton.requests[automaton.step(caught, None)] == Final("done", "lost")
    cleaning = automaton.step(automaton.start, KeyboardInterrupt())
    assert automaton.requests[cleaning] == "clean up"
    final = automaton.requests[automaton.step(cleaning, None)]
    assert final.how == "raised"
    assert isinstance(final.value, KeyboardInterrupt)
    other = automaton.step(automaton.start, OSError(5, "input/output error"))
    assert automaton.requests[automaton.step(other, None)].value.errno == 5
    assert len({cleaning, other}) == 2  # the exception that is being handled is part of the state


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


def test_a_protocol_that_is_different_at_each_run_is_noticed() -> None:
    runs = iter(range(10**6))

    def protocol() -> Generator[Any, None, None]:
        lucky = next(runs) % 5 == 4
        for _ in range(3):
            yield "step"
        yield "lucky" if lucky else "unlucky"

    automaton = Automaton(protocol)
    with pytest.raises(HiddenState):
        for _ in range(50):
            walk(automaton, [None, 1, 2])


# ---- renaming


def names_and_reaps() -> Generator[Any, Any, None]:
    while True:
        mine = yield "create"
        seen = yield ("list", mine)
        for other in seen:
            if other != mine:
                yield ("reap", other)
        yield ("delete", mine)


def test_renaming_leads_to_the_state_that_the_other_names_lead_to() -> None:
    automaton = Automaton(names_and_reaps)
    seven = automaton.step(automaton.start, "id7")
    assert "id7" in automaton.mentions(seven)
    assert "id0" not in automaton.mentions(seven)
    zero = automaton.rename(seven, {"id7": "id0", "id9": "id3"})
    assert zero == automaton.step(automaton.start, "id0") != seven
    assert automaton.rename(seven, {"id8": "id0"}) == seven
    reaping = automaton.step(seven, ("id5", "id7", "id6"))
    assert automaton.requests[reaping] == ("reap", "id5")
    renamed_reaping = automaton.rename(reaping, {"id7": "id0", "id5": "id7", "id6": "id5"})
    assert automaton.requests[renamed_reaping] == ("reap", "id7")
    assert automaton.requests[automaton.step(renamed_reaping, None)] == ("reap", "id5")
    assert automaton.mentions(automaton.step(automaton.step(renamed_reaping, None), None)) >= {"id0"}


def test_a_protocol_that_compares_the_order_of_names_is_noticed() -> None:
    def protocol() -> Generator[Any, Any, None]:
        mine = yield "create"
        other = yield "list"
        yield ("before" if mine < other else "after", mine, other)

    automaton = Automaton(protocol)
    local = automaton.step(automaton.step(automaton.start, "a"), "b")
    with pytest.raises(HiddenState, match="more than the equality"):
        automaton.rename(local, {"a": "b", "b": "a"})


def test_a_coroutine_is_a_protocol_too() -> None:
    class Counts:
        __slots__ = ("times",)

        def __init__(self) -> None:
            self.times = 0

    async def inner(counts: Counts, answer: int) -> int:
        counts.times = (counts.times + answer) % 3
        return int(await effect(("times", counts.times)))

    async def protocol() -> None:
        counts, answer = Counts(), 0
        while True:
            answer = await inner(counts, answer)

    automaton = Automaton(protocol)
    walk(automaton, [0, 1])
    assert len(automaton) == 3  # what is in slots belongs to the state
    assert automaton.where(0).startswith("effect (runtime.py:")
