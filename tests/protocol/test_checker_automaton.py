"""The automaton of a protocol: what makes two local states one, what is noticed when it is hidden, renaming."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import pytest

from proof import Automaton, Final, HiddenState
from proof.renaming import permutation, renamed
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


def test_yields_inside_loops_and_expressions_are_states_of_their_own() -> None:
    def protocol() -> Generator[Any, int, int]:
        for place in range(3):
            yield place
        for _ in [1, 2, 3, 4]:
            yield "loop"
        total = 0
        for place, factor in enumerate((10, 20)):
            total = max(total, factor * (yield "factor") + place)
        return total

    automaton = Automaton(protocol)
    walk(automaton, [1])
    assert len(automaton) == 3 + 4 + 2 + 1
    assert automaton.requests[-1] == Final("done", 21)


def test_the_chain_of_yield_from_is_part_of_the_state() -> None:
    def inner(times: int) -> Generator[str, None, str]:
        for _ in range(times):
            yield "inner"
        return "inner is done"

    def protocol() -> Generator[str, None, tuple[str, str]]:
        first = yield from inner(1)
        helper = inner(2)
        second = yield from helper
        yield from ["a list", "delegates too"]
        return first, second

    automaton = Automaton(protocol)
    walk(automaton, [None])
    assert automaton.requests == ["inner"] * 3 + ["a list", "delegates too", Final("done", ("inner is done",) * 2)]


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


def test_an_interrupt_of_the_checker_itself_is_not_a_result() -> None:
    def protocol() -> Generator[str, None, None]:
        yield "once"
        raise KeyboardInterrupt

    automaton = Automaton(protocol)
    with pytest.raises(KeyboardInterrupt):
        automaton.step(automaton.start, None)


def test_results_that_cannot_be_hashed_are_taken_by_content() -> None:
    def protocol() -> Generator[str, Any, Any]:
        rows = yield "list"
        chosen = {key: set(value) for key, value in rows}
        yield "check"
        return sorted(chosen["a"])

    automaton = Automaton(protocol)
    first = automaton.step(automaton.start, [("a", [2, 1])])
    assert automaton.step(automaton.start, [("a", [2, 1])]) == first
    assert automaton.step(automaton.start, [("a", [1, 2, 2])]) == first  # after other results, the same variables
    assert automaton.step(automaton.start, [("a", [3])]) != first
    assert automaton.requests[automaton.step(first, None)] == Final("done", [1, 2])


def test_functions_and_closures_are_taken_with_what_they_close_over() -> None:
    def protocol() -> Generator[str, int, int]:
        limit = yield "limit"

        def below(number: int) -> bool:
            return number < limit

        methods = [limit.bit_length, str.upper, Colour]
        number = yield "number"
        return below(number) + len(methods)

    automaton = Automaton(protocol)
    walk(automaton, [1, 2])
    assert automaton.step(automaton.start, 1) != automaton.step(automaton.start, 2)
    assert {request.value for request in automaton.requests if isinstance(request, Final)} == {3, 4}


def test_self_is_a_constant() -> None:
    class Store:
        def __init__(self) -> None:
            self.url = object()

        def enter(self) -> Generator[str, bool, Store]:
            while True:
                entered = yield "enter"
                if entered:
                    return self

    automaton = Automaton(lambda: Store().enter())
    walk(automaton, [True, False])
    assert len(automaton) == 2


def test_a_small_mutable_object_with_slots_is_taken_by_content() -> None:
    class Attempt:
        __slots__ = ("claim", "tries")

        def __init__(self) -> None:
            self.tries = 0

    def protocol() -> Generator[str, str, str]:
        attempt = Attempt()
        while attempt.tries < 4:
            attempt.claim = yield "enter"
            attempt.tries += 1
        return attempt.claim

    automaton = Automaton(protocol, witnesses=0)
    walk(automaton, ["a"])
    assert len(automaton) == 5
    assert automaton.requests[-1] == Final("done", "a")


def test_whatever_a_variable_may_hold_is_told_apart_by_content() -> None:
    class Name(str):
        """A string with a class of its own."""

    class Store:
        def leave(self) -> None:
            """Do nothing."""

    def helper(first: int) -> Generator[int, None, None]:
        yield first
        yield first + 1

    def protocol() -> Generator[str, int, list[Any]]:
        number = yield "number"
        running = helper(number)
        next(running)
        pairs = zip([number], {number: 1}, strict=True)
        label = Name(number)
        leave = Store().leave

        def later() -> int:
            return unset

        yield "hold"
        unset = number
        leave()
        return [*running, *pairs, label, later()]

    automaton = Automaton(protocol)
    walk(automaton, [1, 2])
    assert len(automaton) == 1 + 2 + 2
    assert automaton.requests[-1].value == [3, (2, 2), "2", 2]


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


def test_a_generator_that_yields_while_it_is_closed_does_no_harm() -> None:
    def protocol() -> Generator[str, None, None]:
        try:
            yield "hold"
        finally:
            yield "release"

    automaton = Automaton(protocol)
    walk(automaton, [None])
    assert automaton.requests == ["hold", "release", Final("done", None)]


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


def test_two_names_never_become_one() -> None:
    automaton = Automaton(names_and_reaps)
    reaping = automaton.step(automaton.step(automaton.start, "id7"), ("id5",))
    with pytest.raises(ValueError, match="held by the local state already"):
        automaton.rename(reaping, {"id7": "id5"})
    with pytest.raises(ValueError, match="become one"):
        automaton.rename(reaping, {"id7": "id1", "id5": "id1"})
    assert permutation({"a": "b", "b": "c"}) == {"a": "b", "b": "c", "c": "a"}


def test_a_name_given_up_long_ago_may_come_back_by_renaming() -> None:
    """The history holds the name already; exchanging the two keeps the past as it was."""
    automaton = Automaton(names_and_reaps)
    local = automaton.start
    for result in ("id0", ("id0", "id1"), None, None, "id1", ("id1", "id0")):
        local = automaton.step(local, result)
    assert automaton.requests[local] == ("reap", "id0")
    end = automaton.step(local, None)
    assert automaton.requests[automaton.rename(end, {"id1": "id0"})] == ("delete", "id0")


def test_a_protocol_that_compares_the_order_of_names_is_noticed() -> None:
    def protocol() -> Generator[Any, Any, None]:
        mine = yield "create"
        other = yield "list"
        yield ("before" if mine < other else "after", mine, other)

    automaton = Automaton(protocol)
    local = automaton.step(automaton.step(automaton.start, "a"), "b")
    with pytest.raises(HiddenState, match="more than the equality"):
        automaton.rename(local, {"a": "b", "b": "a"})


def test_values_are_renamed_at_any_depth_and_left_alone_where_nothing_changes() -> None:
    value = [Ask("x"), {"x": (1, frozenset({"x", "y"}))}, Reply(True, ("x",)), OSError("x", 1), {"y"}]
    result = renamed(value, {"x": "z"})
    assert result[:3] == [Ask("z"), {"z": (1, frozenset({"z", "y"}))}, Reply(True, ("z",))]
    assert result[3].args == ("z", 1)
    untouched = (Ask("y"), Reply(True), ValueError("y"))
    assert renamed(untouched, {"x": "z", 1: 2}) is untouched


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
