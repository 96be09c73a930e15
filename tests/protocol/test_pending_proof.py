"""The production code of the pending protocol, in every interleaving of small configurations with faults."""

from __future__ import annotations

import pytest

from proof.__main__ import main
from proof.pending import report
from proof.pending.configurations import CI, Configuration
from proof.pending.options import Options
from proof.pending.report import proof, shown
from proof.pending.verdicts import verdict


@pytest.mark.parametrize("row", CI, ids=lambda row: f"{row.group}: {row.name}")
def test_production_code_is_right_in(row: Configuration) -> None:
    found = verdict(row.options, live=row.live, fair=row.fair)
    assert found.finding is None, shown(found.finding)
    assert found.complete
    assert (found.live, found.fair) == (row.live, row.fair)


def test_the_command_prints_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(report, "CI", CI[:2])
    assert main(["pending"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split(" | ")[-1] for row in rows] == ["safe, live |", "safe, live, nobody starves |"]


def test_a_wrong_world_is_told_with_the_way_to_it() -> None:
    broken = Configuration("bad clock", "exclusion is not kept", Options(leases=True, bad_clock=True))
    _, (row, good), (way, _) = proof([broken])
    assert not good
    assert "WRONG: two holders" in row
    assert "A's record expires too early" in way
