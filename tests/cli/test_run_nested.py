"""Nested `interlock run`: different names nest; the same name is an error instead of a deadlock."""

import shlex

import pytest

from interlock.testing.waiting import moment, since
from tests.support.cli_processes import COMMAND, CliRunner

RUN = shlex.join([*COMMAND, "run"])
HELD = "is held by an enclosing interlock run"


def nested(run_cli: CliRunner, outer: str, inner: str, *options: str, **how: object) -> tuple[int, str, str]:
    """Run `inner` as the command of `outer`, both after `interlock run`."""
    return run_cli.run("run", *options, *shlex.split(outer), "--", *COMMAND, "run", *shlex.split(inner), **how)


def test_the_same_name_is_told_at_once_and_is_64(run_cli: CliRunner) -> None:
    begun = moment()
    status, printed, errors = nested(run_cli, "x", "x -- echo in")
    assert (status, printed) == (64, "")
    assert errors.startswith(f"interlock: 'x' {HELD}")
    assert errors.count("\n") == 1
    assert "-n or -w" in errors
    assert since(begun) < 15
    assert run_cli.locks.claims() == []


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("x", "y -- echo in"),
        ("x", "--namespace shop x -- echo in"),
        ("--namespace shop x", "x -- echo in"),
        ("-s x", "-s x -- echo in"),
        ("--permits 2 x", "--permits 2 x -- echo in"),
        ("--permits 3 --units 2 x", "--permits 3 x -- echo in"),
    ],
)
def test_what_has_room_beside_it_nests(run_cli: CliRunner, outer: str, inner: str) -> None:
    assert nested(run_cli, outer, inner) == (0, "in\n", "")


def test_the_same_name_in_another_store_nests(run_cli: CliRunner) -> None:
    elsewhere = (run_cli.folder / "elsewhere").as_uri()
    assert nested(run_cli, "x", f"--store {elsewhere} x -- echo in") == (0, "in\n", "")


def test_the_same_store_by_another_spelling_does_not(run_cli: CliRunner) -> None:
    (run_cli.folder / "link").symlink_to(run_cli.folder / "locks")
    assert nested(run_cli, "x", f"--store {(run_cli.folder / 'link').as_uri()} x -- echo in")[0] == 64


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("x", "-s x -- echo in"),
        ("-s x", "x -- echo in"),
        ("--permits 2 --units 2 x", "--permits 2 x -- echo in"),
        ("--permits 2 x", "--permits 2 --units 2 x -- echo in"),
        ("--permits 2 x", "x -- echo in"),
    ],
)
def test_what_never_has_room_is_told(run_cli: CliRunner, outer: str, inner: str) -> None:
    status, _, errors = nested(run_cli, outer, inner)
    assert status == 64
    assert HELD in errors


def test_a_nested_reader_behind_a_waiting_writer_is_refused(run_cli: CliRunner) -> None:
    inner = f"echo in; read _; {RUN} -s x -- echo inner; echo $?"
    run = run_cli.start_and_read("in", "run", "-s", "x", "--", "sh", "-c", inner)
    writer = run_cli.start_in_line("run", "x", "--", "echo", "writer", name="x")
    run.say("")
    assert run.read_line() == "64"
    assert run.ended()[0] == 0
    assert writer.ended() == (0, "writer\n", "")


def test_with_w_it_waits_so_long_and_says_why_at_once(run_cli: CliRunner) -> None:
    run = run_cli.start("run", "x", "--", *COMMAND, "run", "-w", "0.2", "-E", "42", "x", "--", "echo", "in")
    assert run.read_error_line() == f"interlock: 'x' {HELD} until that run ends."
    assert run.ended()[0] == 42


def test_the_command_is_told_which_claims_are_around_it(run_cli: CliRunner) -> None:
    assert run_cli.run("run", "x", "--", "sh", "-c", "echo ${INTERLOCK_HELD?}", extra={"INTERLOCK_HELD": ""})[0] == 0
    script = f"{RUN} y -- sh -c 'echo $INTERLOCK_NAME $INTERLOCK_HELD; cat'"
    run = run_cli.start("run", "x", "--", "sh", "-c", script)
    name, *held = run.read_line().split()
    assert name == "y"
    assert held == [run_cli.locks.claims(each)[0].id for each in ("x", "y")]
