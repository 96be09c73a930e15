"""The scenarios in databases: that they measure what they say, never how fast anything is.

Hand-over and processes are played by the same code as on Redis, with the contestants that are here.
"""

import json
from pathlib import Path

from bench.scenarios import by_key
from tests.support.bench_command import bench

OURS, RAW = "interlock PostgreSQL", "raw pg_advisory_lock"


def test_the_group_runs_and_judges_its_targets(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    words = ("--rounds", "1", "--seconds", "0.05", "--quiet", "--contestant", f"{OURS},{RAW},two SELECT 1")
    ran = bench("sql", "--only", "sql_uncontended,sql_waiters", *words, "--json", str(file))
    assert ran.returncode == 0, ran.stderr
    figures = {}
    for scenario in json.loads(file.read_text())["scenarios"]:
        plan = by_key(scenario["key"])
        found = {one["name"]: one["figures"] for one in scenario["contestants"] if one["status"] == "ok"}
        assert all(set(each) == {metric.key for metric in plan.metrics} for each in found.values())
        assert scenario["targets"][0]["verdict"] in ("reached", "not reached")
        figures[plan.key] = found
    assert figures["sql_uncontended"].keys() >= {OURS, RAW, "two SELECT 1"}
    assert figures["sql_waiters"].keys() >= {OURS, RAW}
    assert figures["sql_waiters"][RAW]["connections"]["value"] == 50
