"""Each safeguard of the file store's folded line is needed: without it the checker finds a violation."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from proof.command import mutants_markdown
from proof.files import CONFIGURATIONS, MUTANTS, Configuration, Mutant, Verdict, verdict

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "files.md"
PROVED = {replace(each, name="") for each in CONFIGURATIONS if not each.large}
"""By `test_files_proof`.  Worlds of four callers belong to the large ones."""
WORLDS = [
    each
    for each in dict.fromkeys(mutant.configuration for mutant in MUTANTS)
    if len(each.roles) < 4 and replace(each, name="") not in PROVED
]


@cache
def found(mutant: Mutant) -> Verdict:
    return verdict(mutant.configuration, mutant.production())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_missing_safeguard_is_caught_with_a_counterexample(mutant: Mutant) -> None:
    one = found(mutant)
    assert one.wrong is not None
    assert mutant.expected in one.wrong
    assert len(one.trace) >= 3
    assert one.trace[0].endswith(" comes")


@pytest.mark.parametrize("configuration", WORLDS, ids=lambda configuration: configuration.name)
def test_the_same_world_is_in_order_with_all_safeguards(configuration: Configuration) -> None:
    one = verdict(configuration)
    assert one.wrong is None, str(one)


def test_the_stores_page_shows_these_mutants() -> None:
    table = mutants_markdown([(mutant, found(mutant)) for mutant in MUTANTS])
    page = PAGE.read_text(encoding="utf-8")
    assert table in page, "run: python -m proof files --mutants"
