"""The scenarios in databases: that they measure what they say, never how fast anything is."""

import json
from pathlib import Path

from bench.scenarios import SCENARIOS
from tests.support.bench_command import bench

GROUP = [scenario for scenario in SCENARIOS if "sql" in scenario.groups]
THERE = ("interlock PostgreSQL", "raw pg_advisory_lock", "two SELECT 1")


def test_the_group_runs_and_judges_its_targets(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    words = ("--rounds", "1", "--seconds", "0.05", "--quiet", "--contestant", ",".join((*THERE, "no lock", "PALs")))
    ran = bench("sql", *words, "--json", str(file))
    assert ran.returncode == 0, ran.stderr
    for scenario, plan in zip(json.loads(file.read_text())["scenarios"], GROUP, strict=True):
        figures = {one["name"]: one["figures"] for one in scenario["contestants"] if one["status"] == "ok"}
        assert figures.keys() >= {one.name for one in plan.contestants if one.name in (*THERE, "no lock")}
        assert all(set(each) == {metric.key for metric in plan.metrics} for each in figures.values())
        assert [target["says"] for target in scenario["targets"]] == [target.says for target in plan.targets]
        assert any(target["verdict"] in ("reached", "not reached") for target in scenario["targets"])
        if plan.key == "sql_processes":
            assert figures["interlock PostgreSQL"]["lost"]["value"] == 0
            assert figures["no lock"]["lost"]["value"] > 0
        if plan.key == "sql_waiters":
            assert figures["raw pg_advisory_lock"]["connections"]["value"] == 50
