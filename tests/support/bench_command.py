"""Running the benchmark's command in tests."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real command at the root of the project."""
    paths = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env={**os.environ, "BENCH_PROCESSES": "2", "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def check_report(scenario: dict[str, Any], plan: Any, printed: str) -> None:
    """Check that the report of a scenario has every contestant and target, and that ours lost no update.

    Args:
        scenario: the scenario in the command's JSON file.
        plan: the scenario in the benchmark's tables.
        printed: the output of the command.
    """
    assert scenario["key"] == plan.key
    found = {one["name"]: one for one in scenario["contestants"]}
    assert list(found) == [one.name for one in plan.contestants]
    for contestant in plan.contestants:
        one = found[contestant.name]
        assert contestant.name in printed
        assert one["status"] == "ok" or (contestant.role == "peer" and one["status"] == "not installed"), one
        if one["status"] == "ok":
            assert set(one["figures"]) == {metric.key for metric in plan.metrics}
        if contestant.role == "ours" and "lost" in one["figures"]:
            assert one["figures"]["lost"]["value"] == 0
    assert len(scenario["targets"]) == len(plan.targets) > 0
    for target in scenario["targets"]:
        assert target["verdict"] in ("reached", "not reached")
        assert target["says"] in printed
