"""`./dev stalls`: the run is stopped, the tests are told for how long, and its status is theirs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.stalls import GROUPS

ROOT = Path(__file__).parents[1]
PROBE = """
import time
from interlock.testing.waiting import moment, since

def test_a_stall_is_seen_by_the_clock_and_left_out_of_bounds():
    began, last, longest = moment(), time.monotonic(), 0.0
    while longest < 0.25:
        time.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert last - began < 60
    time.sleep(1)  # until it is told
    assert since(began) < time.monotonic() - began - 0.25

def test_that_fails():
    assert not "by order of the test"
"""


def stalled(probe: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a file of tests."""
    command = [sys.executable, "-m", "tests.support.stalls", "-q", "-p", "no:cacheprovider", str(probe), *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)


def groups() -> set[Path]:
    """Return the control groups of such runs."""
    return {group for each in GROUPS for group in each.glob("stalls-*")}


def test_a_run_is_stopped_now_and_then(tmp_path: Path) -> None:
    probe = tmp_path / "test_probe.py"
    probe.write_text(PROBE)
    before = groups()
    if not any(os.access(each / "cgroup.procs", os.W_OK) for each in GROUPS):
        refused = stalled(probe)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "run it as root" in refused.stderr
        return
    ended = stalled(probe, "-k", "left_out")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines()[-1].startswith("stood still for ")
    assert stalled(probe, "-k", "fails").returncode == pytest.ExitCode.TESTS_FAILED
    assert groups() <= before
