"""Nested `interlock run`: different names nest; the same name is an error instead of a deadlock."""

import shlex

import pytest

from interlock.testing.waiting import moment, since
from tests.support.cli_processes import COMMAND, House

RUN = shlex.join([*COMMAND, "run"])
HELD = "is held by an enclosing interlock run"


def nested(house: House, outer: str, inner: str, *options: str, **how: object) -> tuple[int, str, str]:
    """Run `inner` as the command of `outer`, both after `interlock run`."""
    return house.run("run", *options, *shlex.split(outer), "--", *COMMAND, "run", *shlex.split(inner), **how)


def test_the_same_name_is_told_at_once_and_is_64(house: House) -> None:
    begun = moment()
    status, printed, errors = nested(house, "x", "x -- echo in")
    assert (status, printed) == (64, "")
    assert errors.startswith(f"interlock: 'x' {HELD}")
    assert errors.count("\n") == 1
    assert "-n or -w" in errors
    assert since(begun) < 15
    assert house.locks.claims() == []


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
def test_what_has_room_beside_it_nests(house: House, outer: str, inner: str) -> None:
    assert nested(house, outer, inner) == (0, "in\n", "")


def test_the_same_name_in_another_store_nests(house: House) -> None:
    elsewhere = (house.folder / "elsewhere").as_uri()
    assert nested(house, "x", f"--store {elsewhere} x -- echo in") == (0, "in\n", "")


def test_the_same_store_by_another_spelling_does_not(house: House) -> None:
    (house.folder / "link").symlink_to(house.folder / "locks")
    assert nested(house, "x", f"--store {(house.folder / 'link').as_uri()} x -- echo in")[0] == 64


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
def test_what_never_has_room_is_told(house: House, outer: str, inner: str) -> None:
    status, _, errors = nested(house, outer, inner)
    assert status == 64
    assert HELD in errors


def test_a_nested_reader_behind_a_waiting_writer_is_refused(house: House) -> None:
    inner = f"echo in; read _; {RUN} -s x -- echo inner; echo $?"
    run = house.start_and_hear("in", "run", "-s", "x", "--", "sh", "-c", inner)
    writer = house.start_in_line("run", "x", "--", "echo", "writer", name="x")
    run.say("")
    assert run.hear() == "64"
    assert run.ended()[0] == 0
    assert writer.ended() == (0, "writer\n", "")


def test_with_w_it_waits_so_long_and_says_why_at_once(house: House) -> None:
    run = house.start("run", "x", "--", *COMMAND, "run", "-w", "0.2", "-E", "42", "x", "--", "echo", "in")
    assert run.hear_error() == f"interlock: 'x' {HELD} until that run ends."
    assert run.ended()[0] == 42


def test_the_command_is_told_which_claims_are_around_it(house: House) -> None:
    assert house.run("run", "x", "--", "sh", "-c", "echo ${INTERLOCK_HELD?}", extra={"INTERLOCK_HELD": ""})[0] == 0
    script = f"{RUN} y -- sh -c 'echo $INTERLOCK_NAME $INTERLOCK_HELD; cat'"
    run = house.start("run", "x", "--", "sh", "-c", script)
    name, *held = run.hear().split()
    assert name == "y"
    assert held == [house.locks.claims(each)[0].id for each in ("x", "y")]
