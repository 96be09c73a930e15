"""The scenarios in a Django project: that they measure correctly, never how fast anything is."""

import json
from pathlib import Path

import pytest

from bench.scenarios import by_key
from tests.support.bench_command import bench, check_report


@pytest.mark.rare
def test_the_group_runs_everybody_and_judges_all_of_its_targets(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ran = bench("django", "--rounds", "1", "--seconds", "0.05", "--quiet", "--json", str(file))
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    scenarios = {one["key"]: one for one in json.loads(file.read_text())["scenarios"]}
    assert len(scenarios) == 3
    for key, scenario in scenarios.items():
        check_report(scenario, by_key(key), ran.stdout)
        assert {one["status"] for one in scenario["contestants"]} == {"ok"}
        assert {target["verdict"] for target in scenario["targets"]} <= {"reached", "not reached"}
