"""The benchmark harness: that it measures correctly, never how fast anything is."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bench import cli, figures, pictures, summary
from bench.against.rows import ROWS
from bench.model import Beside, Metric, Outcome, Result, Target
from bench.scenarios import SCENARIOS, by_key, processes
from tests.support.bench_command import bench, check_report

ALONE = [scenario for scenario in SCENARIOS if "django" not in scenario.groups]  # they have a test of their own


OFTEN = {"memory"}
"""The others share their code with these."""

PORTALOCKER = "Killing unavailable redis client"  # its log message about its own clients on a busy machine


@pytest.mark.parametrize(
    "key", [pytest.param(one.key, marks=() if one.key in OFTEN else pytest.mark.rare) for one in ALONE]
)
def test_a_run_reports_every_contestant_and_ours_lose_no_update(key: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ran = bench("all", "--only", key, "--rounds", "1", "--seconds", "0.05", "--json", str(file), "--quiet")
    assert ran.returncode == 0, ran.stderr
    (scenario,) = json.loads(file.read_text())["scenarios"]
    check_report(scenario, by_key(key), ran.stdout)
    if "redis" in by_key(key).groups:
        told = [line for line in ran.stderr.splitlines() if not line.startswith(PORTALOCKER)]
        assert told == []


@pytest.mark.parametrize(
    "arguments", [["files", "--rounds", "0"], ["files", "--only", "nothing"], ["nothing"], ["files", "--old", "x"]]
)
def test_wrong_arguments_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_the_table_prints_a_line_for_each_figure_of_a_scenario(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ran = bench("--only", "processes", "--rounds", "1", "--seconds", "0.05", "--json", str(file), "--quiet")
    assert ran.returncode == 0, ran.stderr
    printed = ran.stdout.partition("ours, peers, limits")[2]
    assert [line.split("  ")[0] for line in printed.splitlines() if line.startswith("files")] == [
        line.words for line in summary.LINES if line.scenario == "processes"
    ]
    (scenario,) = json.loads(file.read_text())["scenarios"]
    assert "portalocker" not in {one["name"] for one in scenario["contestants"]}


@pytest.mark.parametrize("line", summary.LINES, ids=lambda line: f"{line.words} {line.metric}")
def test_each_line_of_the_table_is_measured(line: summary.Line) -> None:
    part = summary.part_of(by_key(line.scenario))
    assert part is not None
    assert {line.ours, *line.others} <= {one.name for one in part.contestants}
    assert part.contestant(line.ours).role == "ours"
    assert line.metric in ("", *(metric.key for metric in part.metrics))
    assert line.row in ("", *(row.name for row in ROWS))


def outcomes(**rounds: dict[str, list[float]]) -> dict[str, Outcome]:
    """Outcomes of contestants that took part."""
    return {name: Outcome(rounds=figures) for name, figures in rounds.items()}


def test_a_lost_update_of_ours_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(processes.SCENARIO, outcomes(interlock={"lost": [0.0, 2.0]}, filelock={"lost": [9.0]}))
    assert cli.verdict([result]) == 1
    assert capsys.readouterr().err == "bench: processes: interlock lost 2 updates\n"


def test_a_contestant_that_failed_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(processes.SCENARIO, {"filelock": Outcome("failed", "no answer within 55 s")})
    assert cli.verdict([result]) == 1
    assert "filelock failed: no answer within 55 s" in capsys.readouterr().err


def judged(target: Target, metric: Metric, **rounds: list[float]) -> figures.Verdict:
    """Judge a target by the given rounds of ours and of a peer."""
    scenario = replace(processes.SCENARIO, metrics=(metric,))
    result = Result(scenario, outcomes(**{name: {metric.key: values} for name, values in rounds.items()}))
    return figures.judge(result, target)


def test_a_ratio_is_taken_round_by_round() -> None:
    times = Beside("peer")
    target = Target("at least 4 x", "ours", "us", 4.0, least=True, beside=times)
    verdict = judged(target, Metric("us", "µs"), ours=[1.0, 2.0, 1.0], peer=[4.0, 10.0, 3.0])
    assert verdict == figures.Verdict(target, figures.Spread(4.0, 3.0, 5.0), True)
    rate = Metric("us", "per second", "high")
    assert judged(target, rate, ours=[1.0], peer=[4.0]).measured == figures.Spread(0.25, 0.25, 0.25)


def test_pictures_and_tables_match_the_checked_in_report() -> None:
    contention = pictures.load()
    for name, drawing in pictures.pictures(contention).items():
        assert (pictures.IMAGES / f"bench-{name}.svg").read_text() == drawing
    for page, made in pictures.tables(contention).items():
        assert pictures.with_table(page.read_text(), made) == page.read_text()
        assert contention["machine"]["date"] in page.read_text()


def test_the_cost_of_renewals_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.renewals", tmp_path.as_uri(), "--names", "5", "--ttl", "0.3"]
    command += ["--seconds", "0.3", "--server", str(os.getpid())]
    said = subprocess.run(command, capture_output=True, text=True).stdout
    form = r"5 names, 50 renewals/s: client [\d.]+ µs each, server [\d.]+ µs each; \d lost; load [\d.]+\n"
    assert re.fullmatch(form, said)
