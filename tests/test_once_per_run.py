"""The fixture `once_per_run`: with any number of pytest-xdist workers, a value is made once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("xdist")
TESTS = """
import os
import pytest

@pytest.mark.parametrize("number", range(8))
def test_schema(once_per_run, number):
    def make():
        made = os.environ["MADE"]
        with open(made, "a") as file:
            print(os.getpid(), file=file)
        if os.environ.get("FAILS") and len(open(made).readlines()) == 1:
            raise ZeroDivisionError
        return {"version": 3}
    assert once_per_run("schema", make) == {"version": 3}
"""


def run(folder: Path, **environment: str) -> tuple[str, list[str]]:
    """Run the tests with two workers; return the summary, and the workers that made the value."""
    (folder / "test_program.py").write_text(TESTS)
    made = folder / "made"
    made.write_text("")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "xdist",
            "-p",
            "interlock.testing.plugin",
            "--basetemp",
            str(folder / "base"),
        ],
        cwd=folder,
        # All other plugins that are installed here would be loaded by each worker.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "MADE": str(made), **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, made.read_text().split()


@pytest.mark.parametrize("name", ["feature%2Flogin", "issue#7", "what?x=1"])
def test_each_run_in_a_folder_of_any_name_makes_it_anew(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for _ in range(2):
        printed, made = run(folder)
        assert "8 passed" in printed
        assert len(made) == 1


def test_one_worker_makes_it_for_all_and_each_run_anew(tmp_path: Path) -> None:
    for _ in range(2):
        output, made = run(tmp_path)
        assert "8 passed" in output
        assert len(made) == 1


def test_a_worker_that_fails_lets_the_next_one_try(tmp_path: Path) -> None:
    output, made = run(tmp_path, FAILS="yes")
    assert "1 failed, 7 passed" in output
    assert len(made) == 2
