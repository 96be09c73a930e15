"""The proofs: production code in every interleaving of small worlds, and without each of its safeguards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model_checker.changes import Change, Mutant, changed
from model_checker.command import NAMES, main, proof, row_of_mutant, row_of_world
from model_checker.explore import explore
from model_checker.files.client import Role
from model_checker.files.configurations import Configuration
from model_checker.files.world import World
from model_checker.handoff.configurations import Configuration as Handoff
from model_checker.handoff.world import World as HandoffWorld
from model_checker.pending.mutants import HARMLESS

ROOT = Path(__file__).parents[2]
PAGES = {
    "seeds": "docs/explanation/seeds.md",
    "pending": "model_checker/pending/README.md",
    "files": "docs/adr/0028-inside-the-file-store.md",
    "handoff": "model_checker/handoff/README.md",
    "share": "docs/adr/0030-proof-of-the-shared-folder.md",
}


def page(name: str) -> list[str]:
    """The lines of the page that shows a proof."""
    return (ROOT / PAGES[name]).read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("name", "world"),
    [
        pytest.param(name, world, id=f"{name} {world.name}", marks=[pytest.mark.rare] if world.rare else [])
        for name in NAMES
        for world in proof(name).worlds
        if not world.large
    ],
)
def test_production_code_is_right_in(name: str, world: Any) -> None:
    found = proof(name).check(world)
    assert found.wrong is None, str(found)
    assert row_of_world(world, found) in page(name), f"run: python -m model_checker {name}"


@pytest.mark.parametrize(
    ("name", "mutant"),
    [pytest.param(name, mutant, id=f"{name} {mutant.name}") for name in NAMES for mutant in proof(name).mutants],
)
def test_the_checker_catches(name: str, mutant: Any) -> None:
    found = proof(name).catch(mutant)
    assert found.wrong is not None
    assert mutant.expected in found.wrong, str(found)
    assert found.trace or found.round
    assert bool(found.round) == found.wrong.startswith(("livelock", "starvation"))
    assert row_of_mutant(mutant, found) in page(name), f"run: python -m model_checker {name} --mutants"


@pytest.mark.rare
@pytest.mark.parametrize("mutant", HARMLESS, ids=lambda mutant: mutant.name)
def test_no_harm_comes_of(mutant: Mutant) -> None:
    found = proof("pending").catch(mutant)
    assert found.wrong is None, str(found)


OTHERS = dict.fromkeys(
    (name, replace(mutant.world, name=""))
    for name in ("files", "handoff")
    for mutant in proof(name).mutants
    if mutant.world not in [replace(world, name=mutant.world.name) for world in proof(name).worlds]
)


@pytest.mark.rare
@pytest.mark.parametrize(("name", "world"), OTHERS, ids=str)
def test_a_mutants_world_is_in_order_with_all_safeguards(name: str, world: Any) -> None:
    found = proof(name).check(world)
    assert found.wrong is None, str(found)


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
def test_the_world_of_files_contains_what_it_promises(configuration: Configuration, label: str) -> None:
    world = World(configuration)
    words = {str(words) for state in explore(world).states() for _, words, _, _ in world.successors(state)}
    assert any(label in each for each in words)


def test_successors_get_in_before_the_server_knows() -> None:
    states = explore(HandoffWorld(Handoff("three of one process", (0, 0, 0)))).states()
    assert any(
        caller.phase == "inside"
        and ("using", caller.id) not in [(place.state, place.id) for place in state.line.places]
        for state in states
        for caller in state.callers
    )


def test_a_change_must_fit_exactly_once() -> None:
    with pytest.raises(ValueError, match="0 times"):
        changed(Change("interlock.core.line", "this is not in the source", ""))
    with pytest.raises(ValueError, match="times"):
        changed(Change("interlock.core.line", "def ", ""))


def test_the_command_shows_the_counterexamples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seeds", "--mutants"]) == 0
    assert "A turns pending into using, and holds the lock" in capsys.readouterr().out
