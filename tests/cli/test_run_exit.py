"""`interlock run`: its exit statuses, and no other output."""

import os
import signal
from pathlib import Path

import pytest

from tests.support.cli_processes import CliRunner


@pytest.mark.parametrize("status", [0, 1, 255])
def test_the_exit_status_is_that_of_the_command(run_cli: CliRunner, status: int) -> None:
    assert run_cli.run("run", "book", "--", "sh", "-c", f"exit {status}") == (status, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_a_command_that_dies_by_a_signal_is_128_and_its_number(run_cli: CliRunner, number: int) -> None:
    assert run_cli.run("run", "book", "--", "sh", "-c", f"kill -{int(number)} $$") == (128 + number, "", "")


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (["-n"], 1),
        (["-w", "0.05"], 1),
        (["-w0.05", "-E", "42"], 42),
        (["-n", "-E", "0"], 0),
        (["-n", "--conflict-exit-code=255"], 255),
        (["-s", "-n"], 1),
        (["--permits", "3", "-n"], 1),
    ],
)
def test_a_held_lock_exits_1_or_as_E_says_without_a_command(
    run_cli: CliRunner, options: list[str], status: int
) -> None:
    with run_cli.locks.lock("book"):
        assert run_cli.run("run", *options, "book", "--", "touch", "ran") == (status, "", "")
        assert [view.pid for view in run_cli.locks.claims("book")] == [os.getpid()]
    assert not (run_cli.folder / "ran").exists()


def test_a_lock_that_becomes_free_in_time_is_obtained(run_cli: CliRunner) -> None:
    holder = run_cli.hold()
    waiter = run_cli.start_in_line("run", "-w", "25", "book", "--", "echo", "ran")
    assert holder.ended() == (0, "out\n", "")
    assert waiter.ended() == (0, "ran\n", "")


def test_a_name_that_no_store_can_keep_is_64(run_cli: CliRunner) -> None:
    status, _, errors = run_cli.run("run", os.fsdecode(b"bo\xffok"), "--", "true")
    assert status == 64
    assert "UTF-8" in errors


def test_a_missing_command_exits_69_without_waiting(run_cli: CliRunner) -> None:
    with run_cli.locks.lock("book"):
        for command in ("no-such-command", "./no-such-command", ""):
            status, output, errors = run_cli.run("run", "book", "--", command)
            assert (status, output) == (69, "")
            assert errors.startswith("interlock: Cannot run ")
            assert errors.count("\n") == 1


def test_a_command_is_found_in_path_and_not_beside_it(run_cli: CliRunner) -> None:
    run_cli.script("tool", "#!/bin/sh\necho from tool\n")
    path = f"{run_cli.folder}{os.pathsep}{os.environ['PATH']}"
    assert run_cli.run("run", "book", "--", "tool", extra={"PATH": path}) == (0, "from tool\n", "")
    assert run_cli.run("run", "book", "--", "tool")[0] == 69


def test_a_script_that_names_no_interpreter_is_run_by_sh(run_cli: CliRunner) -> None:
    run_cli.script("bare", 'echo "bare $1"\n')
    assert run_cli.run("run", "book", "--", "./bare", "x") == (0, "bare x\n", "")


def test_a_command_removed_while_waiting_exits_69_and_releases(run_cli: CliRunner) -> None:
    vanishing = Path(run_cli.script("vanishing", "#!/bin/sh\n"))
    holder = run_cli.hold()
    waiter = run_cli.start_in_line("run", "book", "--", str(vanishing))
    vanishing.unlink()
    holder.ended()
    status, _, errors = waiter.ended()
    assert status == 69
    assert "No such file" in errors
    assert run_cli.locks.claims() == []


def test_a_store_that_can_not_be_used_is_75(run_cli: CliRunner) -> None:
    (run_cli.folder / "file").write_text("")
    status, output, errors = run_cli.run(
        "run", "--store", f"{run_cli.folder.as_uri()}/file/locks", "book", "--", "true"
    )
    assert (status, output) == (75, "")
    assert errors.startswith("interlock: The store cannot be used: ")
    assert errors.count("\n") == 1
