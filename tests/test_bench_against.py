"""`./dev bench --against WHEEL`: that it measures and judges, never how fast anything is."""

import json
from pathlib import Path

import pytest

from bench import cli
from bench.against.places import wheel_of_tree
from bench.against.rows import Measured, Row
from tests.support.bench_command import bench

ROW = Row("memory", "pairs", "threads", limit=1.05)
WANTED = Row("files", "fresh_names", "fresh names", wanted=0.5)


@pytest.mark.rare
def test_the_tree_against_itself_is_measured_in_each_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_PURE", "1")  # nothing to compile
    wheel, file = wheel_of_tree(tmp_path), tmp_path / "report.json"
    ran = bench(
        "--against", str(wheel), "--rounds", "6", "--seconds", "0.02", "--rows", "memory", "--json", str(file)
    )
    runs = json.loads(file.read_text())["runs"]
    assert [row["row"] for row in runs[0]] == ["memory threads", "memory asyncio"]
    for row in runs[0]:
        assert len(row["old"]) == len(row["new"]) == 6
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
        assert row["verdict"] in ("ok", f"FAILS, above {row['limit']:g}")
        assert row["row"] in ran.stdout
    assert ran.stdout.count("load") == len(runs)
    assert ran.returncode == (len(runs) == 2 and any("FAILS" in row["verdict"] for row in runs[1])), ran.stderr


def measured(row: Row, *ratios: float) -> Measured:
    """Rounds with these ratios, each on a machine that is as fast as it likes."""
    old = [10.0 * number for number in range(1, len(ratios) + 1)]
    return Measured(row, old, [ratio * one for ratio, one in zip(ratios, old, strict=True)])


def test_a_row_fails_if_its_whole_interval_lies_above_the_limit() -> None:
    assert measured(ROW, 1.06, 1.07, 1.08, 1.09, 1.1, 1.2).verdict() == "FAILS, above 1.05"
    assert measured(ROW, 1.04, 1.07, 1.08, 1.09, 1.1, 1.2).verdict() == "ok"
    assert not measured(ROW, 1.04, 2.0, 2.0, 2.0, 2.0, 2.0).fails


def test_what_broke_fails_and_what_is_not_installed_does_not() -> None:
    assert Measured(ROW, error="an exception").fails
    assert Measured(ROW, missing="apt-get install it").verdict() == "NOT MEASURED"
    assert not Measured(ROW, missing="apt-get install it").fails


@pytest.mark.parametrize("words", [["--rounds", "5"], ["--rows", "nothing"], []], ids=["rounds", "rows", "wheel"])
def test_wrong_arguments_are_refused(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wheel = tmp_path / "old.whl"
    if words:
        wheel.touch()
    with pytest.raises(SystemExit) as ended:
        cli.main([f"--against={wheel}", *words])
    assert ended.value.code == 2
    assert "at least 6 rounds" in capsys.readouterr().err
