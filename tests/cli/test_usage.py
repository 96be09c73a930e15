"""Wrong usage of any command: one line that says what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.cli import main


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["lock"], "No such command 'lock'"),
        (["lss"], "Did you mean 'ls'?"),
        (["nightly", "--", "true"], "No such command 'nightly'"),
        (["--permits=3", "ls"], "No such option '--permits'"),
        (["run", "--json", "book", "true"], "write -- before COMMAND"),
        (["run", "--wiat=3", "nightly"], "--wait"),
        (["ls", "book"], "unexpected extra argument"),
        (["ls", "--jsn"], "--jsn"),
        (["show"], "Missing argument 'NAME'"),
        (["show", ""], "must not be empty"),
        (["evict"], "Give the NAME of a lock, or --instance."),
        (["watch", "--interval"], "requires an argument"),
        (["doctor", "--store", "nonsense://here"], "Unknown store scheme"),
        (["ls", "--store", "here"], "not a store URL"),
        (["ls", "--store", "reddis://here"], "Did you mean redis://?"),
        (["ls", "--store", "postgres://here"], "Did you mean postgresql://?"),
        (["ls", "--store", "/var/locks"], "Did you mean 'file:///var/locks'?"),
        (["ls", "--store", "file://var/locks"], "Did you mean file:///var/locks?"),
        (["ls", "--store", "unix://run/redis"], "Did you mean unix:///run/redis?"),
        (["ls", "--store", "redis:here"], "'redis://localhost'"),
        (["ls", "--namespace", "x" * 1001], "the limit is 1000"),
        (["run"], "Missing argument 'NAME'"),
        (["run", "book"], "COMMAND is missing"),
        (["run", "book", "--"], "COMMAND is missing"),
        (["run", "-x"], "Missing argument 'NAME'"),
        (["run", "-q", "book", "true"], "No such option"),
        (["run", "book", "--quick", "true"], "write -- before COMMAND"),
        (["run", "-s", "-x", "book", "true"], "-s and -x contradict"),
        (["run", "-s", "--permits", "2", "book", "true"], "-s and --permits contradict"),
        (["run", "-n", "-w", "3", "book", "true"], "-n and -w contradict"),
        (["run", "-u", "book", "true"], "released when COMMAND ends"),
        (["run", "--unlock", "book", "true"], "released when COMMAND ends"),
        (["run", "-F", "book", "true"], "must keep running"),
        (["run", "-w", "soon", "book", "true"], "'soon' is not a duration"),
        (["run", "-w", "-1", "book", "true"], "is not a duration"),
        (["run", "-w", "nan", "book", "true"], "is not a duration"),
        (["run", "-w", "inf", "book", "true"], "is not a duration"),
        (["run", "-w"], "'-w' requires an argument. See interlock run --help."),
        (["run", "book", "-nw"], "'-w' requires an argument"),
        (["run", "--grace", "-1", "book", "true"], "is not a duration"),
        (["run", "-E", "256", "book", "true"], "0<=x<=255"),
        (["run", "-E", "-1", "book", "true"], "0<=x<=255"),
        (["run", "-E", "one", "book", "true"], "'one' is not a valid integer"),
        (["run", "--units", "2", "book", "true"], "--permits"),
        (["run", "--permits", "0", "book", "true"], "x>=1"),
        (["run", "--permits", "2", "--units", "3", "book", "true"], "Ask for fewer"),
        (["run", "--keep=yes", "book", "true"], "does not take a value"),
        (["run", "-c", "true", "book", "false"], "as one word"),
        (["run", "--ttl", "0", "book", "true"], "between 0.1"),
        (["run", "", "true"], "must not be empty"),
        (["run", "x" * 1001, "true"], "the limit is 1000"),
        (["run", "--namespace", "x" * 1001, "book", "true"], "the limit is 1000"),
        (["run", "--label", "x" * 201, "book", "true"], "the limit is 200"),
        (["run", "--store", "memory://", "book", "true"], "guard nothing"),
        (["run", "--store", "nonsense://here", "book", "true"], "Unknown store scheme"),
        (["run", "--store", "/var/locks", "book", "true"], "not a store URL"),
        (["run", "two\nlines", "--quick", "true"], "No such option"),
    ],
)
def test_wrong_usage_is_64_with_one_line_that_says_what_to_do(
    words: list[str], advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_URL", (tmp_path / "locks").as_uri())
    assert main(words) == 64
    output, errors = capsys.readouterr()
    assert output == ""
    assert advice in errors
    assert errors.startswith("interlock: ")
    assert errors.count("\n") == 1


NO_FORK = "import os, subprocess, sys\nsys.modules['fcntl'] = None\ndel os.fork\n"


@pytest.mark.parametrize("words", [["run"], ["once", "--keep", "1m"], ["lead"]], ids=lambda words: words[0])
def test_a_system_without_fork_that_is_not_windows_is_69(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(NO_FORK)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    ran = subprocess.run(
        [sys.executable, "-m", "interlock", *words, "--store", f"file://{tmp_path}/locks", "job", "--", "true"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 69
    assert ran.stderr.splitlines() == [
        f"interlock: interlock {words[0]} needs POSIX or Windows. Use a lock in the program itself."
    ]
