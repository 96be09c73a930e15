"""The original scheme as published: the checker's verdict on each version, for two and for three clients."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from proof import explore
from proof.__main__ import main
from proof.seeds import VERSIONS, Verdict, verdicts
from proof.seeds.report import markdown
from proof.seeds.world import World

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "seeds.md"
CLIENTS = (2, 3)


@cache
def found(clients: int) -> dict[str, Verdict]:
    return {each.version.title: each for each in verdicts(clients)}


def test_a_serializable_database_refuses_one_of_two_commits() -> None:
    version = next(version for version in VERSIONS if "SERIALIZABLE" in version.name)
    world = World(version, 2)
    labels = {label for state in explore(world).states() for _, label, _, _ in world.successors(state)}
    assert "A commits and is refused: could not serialize" in labels
    assert "B commits and is refused: could not serialize" in labels


def test_the_page_of_the_documentation_shows_these_verdicts() -> None:
    generated = markdown([list(found(clients).values()) for clients in CLIENTS])
    page = PAGE.read_text(encoding="utf-8")
    assert generated in page, "run: python -m proof seeds"


def test_the_command_prints_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seeds", "--clients", "2"]) == 0
    assert markdown([list(found(2).values())]) in capsys.readouterr().out
