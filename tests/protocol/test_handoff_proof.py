"""The local hand-off: the production registry of waiters in every interleaving, with every fault."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from proof import explore
from proof.command import mutants_markdown
from proof.handoff import CONFIGURATIONS, Configuration, Verdict, verdict
from proof.handoff.mutants import MUTANTS, Mutant, judged
from proof.handoff.report import markdown
from proof.handoff.world import World

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "handoff.md"
SMALL = [each for each in CONFIGURATIONS if not each.large]
WORLDS = list(dict.fromkeys(mutant.configuration for mutant in MUTANTS))


@cache
def found(configuration: Configuration) -> Verdict:
    return verdict(configuration)


@cache
def caught(mutant: Mutant) -> Verdict:
    return judged(mutant)


@pytest.mark.parametrize("configuration", SMALL, ids=lambda configuration: configuration.name)
def test_never_two_are_in_and_everybody_comes_to_an_end(configuration: Configuration) -> None:
    one = found(configuration)
    assert one.wrong is None, str(one)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_safeguard_is_caught_with_a_counterexample(mutant: Mutant) -> None:
    one = caught(mutant)
    assert one.wrong is not None
    assert mutant.expected in one.wrong
    assert len(one.trace) >= 5


@pytest.mark.parametrize("configuration", WORLDS, ids=lambda configuration: configuration.name)
def test_the_same_world_is_in_order_with_all_safeguards(configuration: Configuration) -> None:
    one = found(configuration)
    assert one.wrong is None, str(one)


def test_handoff_get_in_before_the_server_knows() -> None:
    world = World(Configuration("three of one process", (0, 0, 0)))
    ahead = [
        state
        for state in explore(world).states()
        if any(
            each.phase == "inside"
            and each.id not in [place.id for place in state.line.places if place.state == "using"]
            for each in state.callers
        )
    ]
    assert ahead


def test_the_page_shows_these_verdicts() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert markdown([found(each) for each in SMALL]) in page, "run: python -m proof handoff"
    assert mutants_markdown([(mutant, caught(mutant)) for mutant in MUTANTS]) in page, (
        "run: python -m proof handoff --mutants"
    )
