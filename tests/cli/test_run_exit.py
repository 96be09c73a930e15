"""`interlock run`: its exit statuses, and no other output."""

import os
import signal
from pathlib import Path

import pytest

from interlock.cli import main
from tests.support.house import House


@pytest.mark.parametrize("status", [0, 1, 255])
def test_the_exit_status_is_that_of_the_command(house: House, status: int) -> None:
    assert house.run("run", "book", "--", "sh", "-c", f"exit {status}") == (status, "", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV])
def test_a_command_that_dies_by_a_signal_is_128_and_its_number(house: House, number: int) -> None:
    assert house.run("run", "book", "--", "sh", "-c", f"kill -{int(number)} $$") == (128 + number, "", "")


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
def test_a_lock_that_others_hold_is_1_or_what_E_says_and_the_command_does_not_run(
    house: House, options: list[str], status: int
) -> None:
    with house.locks.lock("book"):
        assert house.run("run", *options, "book", "--", "touch", "ran") == (status, "", "")
        assert [view.pid for view in house.locks.claims("book")] == [os.getpid()]
    assert not (house.folder / "ran").exists()


def test_a_lock_that_becomes_free_in_time_is_obtained(house: House) -> None:
    holder = house.hold()
    waiter = house.start("run", "-w", "25", "book", "--", "echo", "ran")
    house.wait_for(1, "pending")
    assert holder.ended() == (0, "out\n", "")
    assert waiter.ended() == (0, "ran\n", "")


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        ([], "Missing argument 'NAME'"),
        (["book"], "which command"),
        (["book", "--"], "which command"),
        (["-x"], "Missing argument 'NAME'"),
        (["-q", "book", "true"], "No such option"),
        (["book", "--quick", "true"], "write -- before the command"),
        (["-s", "-x", "book", "true"], "-s and -x contradict"),
        (["-s", "--permits", "2", "book", "true"], "-s and --permits contradict"),
        (["-n", "-w", "3", "book", "true"], "-n and -w contradict"),
        (["-u", "book", "true"], "released when the command ends"),
        (["--unlock", "book", "true"], "released when the command ends"),
        (["-F", "book", "true"], "must keep running"),
        (["-w", "soon", "book", "true"], "'soon' is no time"),
        (["-w", "-1", "book", "true"], "is no time"),
        (["-w", "nan", "book", "true"], "is no time"),
        (["-w", "inf", "book", "true"], "is no time"),
        (["-w"], "'-w' requires an argument. (see interlock run --help)"),
        (["book", "-nw"], "'-w' requires an argument"),
        (["--grace", "-1", "book", "true"], "is no time"),
        (["-E", "256", "book", "true"], "0<=x<=255"),
        (["-E", "-1", "book", "true"], "0<=x<=255"),
        (["-E", "one", "book", "true"], "'one' is not a valid integer"),
        (["--units", "2", "book", "true"], "--permits"),
        (["--permits", "0", "book", "true"], "x>=1"),
        (["--permits", "2", "--units", "3", "book", "true"], "ask for fewer"),
        (["--keep=yes", "book", "true"], "does not take a value"),
        (["-c", "true", "book", "false"], "as one word"),
        (["--ttl", "0", "book", "true"], "from 0.1"),
        (["", "true"], "must not be empty"),
        (["x" * 1001, "true"], "at most 1000 characters"),
        (["--namespace", "x" * 1001, "book", "true"], "at most 1000 characters"),
        (["--label", "x" * 201, "book", "true"], "at most 200 characters"),
        (["--store", "memory://", "book", "true"], "guards nothing"),
        (["--store", "nonsense://here", "book", "true"], "no store has the scheme"),
        (["--store", "/var/locks", "book", "true"], "no store URL"),
        (["two\nlines", "--quick", "true"], "No such option"),
    ],
)
def test_wrong_usage_is_64_with_one_line_that_says_what_to_do(
    words: list[str], advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_URL", (tmp_path / "locks").as_uri())
    assert main(["run", *words]) == 64
    output, errors = capsys.readouterr()
    assert output == ""
    assert advice in errors
    assert errors.startswith("interlock: ")
    assert errors.count("\n") == 1


def test_a_name_that_no_store_can_keep_is_64(house: House) -> None:
    status, _, errors = house.run("run", os.fsdecode(b"bo\xffok"), "--", "true")
    assert status == 64
    assert "UTF-8" in errors


def test_a_command_that_is_not_there_is_69_without_waiting_for_the_lock(house: House) -> None:
    with house.locks.lock("book"):
        for command in ("no-such-command", "./no-such-command", ""):
            status, output, errors = house.run("run", "book", "--", command)
            assert (status, output) == (69, "")
            assert errors.startswith("interlock: can't run ")
            assert errors.count("\n") == 1


def test_a_command_is_found_in_path_and_not_beside_it(house: House) -> None:
    house.script("tool", "#!/bin/sh\necho from tool\n")
    path = f"{house.folder}{os.pathsep}{os.environ['PATH']}"
    assert house.run("run", "book", "--", "tool", extra={"PATH": path}) == (0, "from tool\n", "")
    assert house.run("run", "book", "--", "tool")[0] == 69


def test_a_script_that_names_no_interpreter_is_run_by_sh(house: House) -> None:
    house.script("bare", 'echo "bare $1"\n')
    assert house.run("run", "book", "--", "./bare", "x") == (0, "bare x\n", "")


def test_a_command_that_vanishes_while_interlock_waits_is_69_and_the_lock_goes_on(house: House) -> None:
    vanishing = Path(house.script("vanishing", "#!/bin/sh\n"))
    holder = house.hold()
    waiter = house.start("run", "book", "--", str(vanishing))
    house.wait_for(1, "pending")
    vanishing.unlink()
    holder.ended()
    status, _, errors = waiter.ended()
    assert status == 69
    assert "No such file" in errors
    assert house.locks.claims() == []


def test_a_store_that_can_not_be_used_is_75(house: House) -> None:
    (house.folder / "file").write_text("")
    status, output, errors = house.run("run", "--store", f"{house.folder.as_uri()}/file/locks", "book", "--", "true")
    assert (status, output) == (75, "")
    assert errors.startswith("interlock: the store can't be used: ")
    assert errors.count("\n") == 1


def test_the_help_tells_every_option_and_status(house: House) -> None:
    for words in (["run", "--help"], ["run", "-h"]):
        status, output, errors = house.run(*words)
        assert (status, errors) == (0, "")
        for part in ("-s, --shared", "-w, --wait", "--keep", "--grace SEC", "128+n", "75"):
            assert part in output
    assert "Hold a lock while a command runs." in house.run("--help")[1]
