"""`./dev demo`: updates lost without a lock, none with one, counted exactly; and nothing is left behind."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from examples.demo.__main__ import demo
from interlock.testing.waiting import eventually, moment, since

COMMAND = [sys.executable, "-m", "examples.demo"]
LONG = ["--updates", "100000", "--seconds", "60"]


# The command


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, check=False)


def test_the_demo_loses_updates_only_without_the_lock(tmp_path: Path) -> None:
    url = (tmp_path / "my locks").as_uri()
    begun = moment()
    ended = run("--json", "--store", url)
    assert since(begun) < 20
    assert (ended.returncode, ended.stderr) == (0, "")
    result = json.loads(ended.stdout)
    assert (result["ok"], result["store"]) == (True, url)
    assert (result["students"], result["administrators"]) == (4, 4)
    bare, locked = result["rounds"]
    assert (bare["locked"], bare["longest_wait"], locked["locked"]) == (False, None, True)
    assert bare["lost"] == bare["lost_status"] + bare["lost_name"] > 0
    assert locked["lost"] == 0
    assert locked["updates"] > 100
    assert 0 < locked["longest_wait"] < 5
    assert any((tmp_path / "my locks").iterdir())  # it uses the store that it is given


def test_it_prints_a_table_and_what_it_means() -> None:
    ended = run("--updates", "40")
    assert (ended.returncode, ended.stderr) == (0, "")
    for words in (
        "without a lock",
        "with interlock",
        "updates/s",
        "longest wait",
        "stale copy",
        "all 40 updates",
    ):
        assert words in ended.stdout


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        (["--store", "memory://"], "memory:// reaches one process only"),
        (["--store", "MEMORY://space"], "leave --store out"),
        (["--store", "nonsense://here"], "nonsense"),
        (["--store", ""], "--store"),
        (["--students", "0"], "1<=x<=16"),
        (["--admins", "17"], "1<=x<=16"),
        (["--books", "0"], "1<=x<=1000"),
        (["--updates", "7"], "give 8 or more"),
        (["--updates", "-1"], "--updates"),
        (["--seconds", "0"], "--seconds"),
        (["--seconds", "nan"], "give a number of seconds"),
        (["--seconds", "soon"], "--seconds"),
    ],
)
def test_a_bad_value_is_refused_with_what_to_do(options: list[str], advice: str) -> None:
    ended = CliRunner().invoke(demo, options)
    assert ended.exit_code not in (0, 1, 70)
    assert advice in " ".join(ended.output.replace("│", " ").split())


# Its processes


def gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def writers(folder: Path, number: int) -> list[int]:
    """The processes that have saved something in round `number` of the demo that runs in `folder`."""
    for path in folder.glob(f"interlock-demo-*/library-{number}.sqlite"):
        with closing(sqlite3.connect(path)) as db:
            try:
                return [pid for (pid,) in db.execute("SELECT DISTINCT pid FROM ledger")]
            except sqlite3.OperationalError:
                return []  # its tables are being made
    return []


@contextmanager
def running(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Run the demo in a process group of its own, with its temporary files in `folder`."""
    folder.mkdir()
    child = subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    try:
        yield child
    finally:
        if not gone(child.pid):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


@pytest.mark.parametrize(("number", "options"), [(1, LONG), (2, ["--updates", "4000", "--seconds", "5"])])
def test_ctrl_c_ends_its_processes_and_removes_its_folder(number: int, options: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    with running(folder, *options) as child:
        eventually(lambda: writers(folder, number))
        os.killpg(child.pid, signal.SIGINT)
        _, errors = child.communicate(timeout=30)
        assert child.returncode not in (0, 70)
        assert "Traceback" not in errors
        assert list(folder.iterdir()) == []
        eventually(lambda: gone(child.pid))


def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    with running(folder, *LONG) as child:
        eventually(lambda: writers(folder, 1))
        child.kill()
        child.communicate(timeout=30)
        eventually(lambda: gone(child.pid))


def test_a_worker_that_is_killed_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    with running(folder, "--json", *LONG) as child:
        victim = eventually(lambda: writers(folder, 1))[0]
        os.kill(victim, signal.SIGKILL)
        output, errors = child.communicate(timeout=30)
        assert child.returncode == 70
        assert f"(process {victim}) died" in errors
        assert "signal 9" in errors
        assert output == ""
        assert list(folder.iterdir()) == []
