"""`interlock run` as the first process of a container: it reaps orphaned processes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from interlock.testing.waiting import eventually
from tests.support.cli_processes import COMMAND, CliRunner, Process, state_of

# An orphan that ends when the named pipe does.
ORPHANS = "for n in 1 2 3 4 5; do (sh -c : &); done; echo made; cat"


def first_processes() -> dict[str, list[str]]:
    """The ways to make interlock the first process that this machine allows."""
    found = {}
    for name, how in (("pid 1", []), ("pid 1 of a user", ["--user", "--map-root-user"])):
        namespace = ["unshare", *how, "--pid", "--fork", "--kill-child", "--mount-proc"]
        if shutil.which("unshare") and subprocess.run([*namespace, "true"], capture_output=True).returncode == 0:
            found[name] = [*namespace, *COMMAND]
    return found


FIRST = first_processes()


def interlock_of(run: Process) -> int:
    """The process id of interlock, seen from here."""
    (found,) = children(run.pid)
    return found


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def zombies(pid: int) -> list[int]:
    """The zombies among the children of a process."""
    return [child for child in children(pid) if state_of(child) == "Z"]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("options", [[], ["--keep"]])
def test_orphans_of_the_command_do_not_stay_as_zombies(run_cli: CliRunner, first: str, options: list[str]) -> None:
    run = run_cli.start_and_read("made", "run", *options, "book", "--", "sh", "-c", ORPHANS, command=FIRST[first])
    me = interlock_of(run)
    eventually(lambda: len(children(me)) == 1)
    assert zombies(me) == []
    assert run_cli.count("using") == 1
    run.say("on")
    assert run.read_line() == "on"
    assert run.ended() == (0, "", "")


@pytest.mark.parametrize("first", FIRST)
def test_the_status_is_the_commands_whatever_else_ends(run_cli: CliRunner, first: str) -> None:
    words = ("run", "book", "--", "sh", "-c", f"{ORPHANS}; exit 7")
    run = run_cli.start_and_read("made", *words, command=FIRST[first])
    assert run.ended() == (7, "", "")
    assert run_cli.locks.claims() == []


@pytest.mark.parametrize("first", FIRST)
def test_orphans_do_not_stay_while_it_holds_the_lock_for_them(run_cli: CliRunner, first: str) -> None:
    os.mkfifo(run_cli.folder / "fifo")
    os.mkfifo(run_cli.folder / "other")
    leave = "(read _ < fifo &); (read _ < other &); exit 5"
    run = run_cli.start("run", "--keep", "-v", "book", "--", "sh", "-c", leave, command=FIRST[first])
    eventually(lambda: "its last process has exited" in run.read_error_line())
    (run_cli.folder / "fifo").write_text("\n")
    me = interlock_of(run)
    eventually(lambda: len(children(me)) == 1)
    assert zombies(me) == []
    (run_cli.folder / "other").write_text("\n")
    assert run.ended()[0] == 5
