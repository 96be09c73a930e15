"""Each safeguard of the pending protocol is needed: without it the checker finds a violation."""

from __future__ import annotations

import pytest

from proof.__main__ import main
from proof.changes import Change, changed
from proof.pending import report
from proof.pending.mutants import CLAIMING, Mutant, judged
from proof.pending.report import shown
from proof.pending.safeguards import MUTANTS, NOT_NEEDED

NAMES = [mutant.name for mutant in MUTANTS]


@pytest.mark.parametrize("mutant", MUTANTS, ids=NAMES)
def test_the_checker_catches(mutant: Mutant) -> None:
    found = judged(mutant).finding
    assert found is not None
    text = shown(found)
    print(text)
    assert found.kind == mutant.expected, text
    assert found.trace
    assert all(step in text for step in found.trace)
    assert bool(found.round) == (found.kind in ("livelock", "starvation"))


@pytest.mark.parametrize("mutant", NOT_NEEDED, ids=[mutant.name for mutant in NOT_NEEDED])
def test_no_harm_comes_of(mutant: Mutant) -> None:
    found = judged(mutant)
    assert found.complete
    assert found.finding is None, shown(found.finding)


def test_a_change_must_fit_exactly_once() -> None:
    with pytest.raises(ValueError, match="0 times"):
        changed(Change(CLAIMING, "this is not in the source", ""))
    with pytest.raises(ValueError, match="2 times"):
        changed(Change(CLAIMING, "await queue.leave(", ""))
    with pytest.raises(ValueError, match="no source"):
        changed(Change("sys", "", ""))


def test_the_command_shows_the_counterexamples(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "MUTANTS", MUTANTS[:1])
    assert main(["pending", "--mutants"]) == 0
    assert f"| {MUTANTS[0].name} | two holders |" in capsys.readouterr().out
