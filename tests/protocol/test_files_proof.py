"""The file store's folded line: the production code's decisions in every interleaving, with every fault."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from proof import explore
from proof.files import CONFIGURATIONS, Configuration, Verdict, verdict
from proof.files.client import Role
from proof.files.report import markdown
from proof.files.world import World

PAGE = Path(__file__).parents[2] / "docs" / "stores" / "files.md"
SMALL = [each for each in CONFIGURATIONS if not each.large]


@cache
def found(name: str) -> Verdict:
    return verdict(next(each for each in SMALL if each.name == name))


@pytest.mark.parametrize("name", [each.name for each in SMALL])
def test_the_folded_line_is_safe_and_everybody_who_waits_comes_to_hold_it(name: str) -> None:
    one = found(name)
    assert one.wrong is None, str(one)
    assert one.complete


@pytest.mark.parametrize(
    ("configuration", "label"),
    [
        (Configuration("kill", (Role(), Role()), kills=1), "is killed in its step: after "),
        (Configuration("death", (Role(), Role()), kills=1), "wakes: the process of A has died"),
        (Configuration("unwatched", (Role(), Role()), kills=1), "before it watches A, that process is killed"),
        (Configuration("late", (Role(), Role()), lapses=1, looks=True), "sees that its lease is over"),
        (Configuration("stopped", (Role(), Role()), lapses=1, looks=True), "leaves, its claim is gone already"),
        (Configuration("told", (Role(), Role())), "wakes: told that B holds the lock"),
        (Configuration("try", (Role(), Role(wait=False))), "B asks: refused"),
        (Configuration("timed", (Role(), Role(times_out=True))), "B's time-out passes"),
        (Configuration("evict", (Role(), Role()), evictions=1), "somebody evicts all claims"),
        (Configuration("busy", (Role(), Role()), busy=True, looks=True), "finds the guard taken"),
        (Configuration("tidy", (Role(), Role()), kills=1, tidies=True), "is killed after 1 of 2 writes"),
        (Configuration("renew", (Role(), Role()), lapses=1, renews=True, looks=True), "A's renewal is refused"),
        (Configuration("interrupt", (Role(), Role()), interrupts=1, looks=True), "is interrupted in its step"),
    ],
    ids=lambda value: value.name if isinstance(value, Configuration) else "",
)
def test_the_world_contains_what_it_promises(configuration: Configuration, label: str) -> None:
    world = World(configuration)
    words = {str(words) for state in explore(world).states() for _, words, _, _ in world.successors(state)}
    assert any(label in each for each in words)


def test_a_search_that_is_cut_short_says_so() -> None:
    assert not verdict(SMALL[0], limit=10).complete


def test_the_stores_page_shows_these_verdicts() -> None:
    table = markdown([found(each.name) for each in SMALL])
    page = PAGE.read_text(encoding="utf-8")
    assert table in page, "run: python -m proof files"
