"""`interlock run`: signals, deaths of processes, and background processes."""

import os
import signal
import sys

import pytest

from interlock.testing.waiting import eventually
from tests.support.cli_processes import REPORTER, House, is_running, leaving, reporter

FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")


@pytest.mark.parametrize("number", FORWARDED)
def test_a_signal_reaches_the_command_once_and_keeps_the_lock(house: House, number: int) -> None:
    run, _ = reporter(house)
    run.send_signal(number)
    assert run.hear() == signal.Signals(number).name
    run.say("")
    assert run.hear() == "line"
    assert house.count("using") == 1
    assert run.ended() == (0, "", "")


def test_the_lock_is_held_until_a_terminated_command_is_gone(house: House) -> None:
    cleaning = 'trap "echo cleaning; read _; echo clean; exit 9" TERM; echo in; while :; do read _; done'
    run = house.start_and_hear("in", "run", "book", "--", "sh", "-c", cleaning)
    run.terminate()
    assert run.hear() == "cleaning"
    assert house.run("run", "-n", "book", "--", "true")[0] == 1
    run.say("")
    assert run.ended() == (9, "clean\n", "")
    assert house.locks.claims() == []


def test_a_signal_before_the_start_of_the_command_is_not_lost(house: House) -> None:
    for _ in range(5):
        run = house.start("run", "book", "--", "sleep", "60")
        house.wait_for(1, "using")
        run.terminate()
        assert run.ended() == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("number", FORWARDED)
def test_a_signal_ends_the_wait_and_leaves_nothing_behind(house: House, number: int) -> None:
    holder = house.hold()
    waiter = house.start_in_line("run", "book", "--", "touch", "ran")
    waiter.send_signal(number)
    assert waiter.ended() == (128 + number, "", "")
    assert house.count("pending") == 0
    assert holder.ended() == (0, "out\n", "")
    assert not (house.folder / "ran").exists()


def test_a_command_that_signals_its_group_gets_the_signal_once(house: House) -> None:
    script = "import os, signal, sys; exec(sys.argv[2].replace('print(os.getpid(), flush=True)', 'os.kill(0, 10)'))"
    run = house.start("run", "book", "--", sys.executable, "-c", script, "stays", REPORTER, start_new_session=True)
    assert run.hear() == "SIGUSR1"
    run.say("")
    assert run.ended() == (0, "line\n", "")


# Deaths


@LINUX
def test_a_command_dies_with_an_interlock_that_was_killed(house: House) -> None:
    run, command = reporter(house)
    run.kill()
    eventually(lambda: not is_running(command))
    eventually(lambda: house.locks.claims() == [])


def test_a_waiter_that_was_killed_leaves_nothing_behind(house: House) -> None:
    holder = house.hold()
    waiter = house.start_in_line("run", "book", "--", "touch", "ran")
    waiter.kill()
    waiter.wait(timeout=30)
    assert holder.ended() == (0, "out\n", "")
    assert house.run("run", "-w", "20", "book", "--", "true") == (0, "", "")
    assert waiter.ended()[1:] == ("", "")  # no process has its output open any more
    assert not (house.folder / "ran").exists()


def test_a_command_that_was_killed_releases(house: House) -> None:
    run, command = reporter(house)
    os.kill(command, signal.SIGKILL)
    assert run.ended() == (128 + signal.SIGKILL, "", "")
    assert house.locks.claims() == []


# What the command leaves running


def test_a_process_in_the_background_does_not_keep_the_lock(house: House) -> None:
    run, left = leaving(house)
    assert run.wait(timeout=30) == 0
    assert is_running(left)
    assert house.locks.claims() == []
    (house.folder / "fifo").write_text("go\n")
    assert run.ended() == (0, "late\n", "")


def test_with_keep_it_does(house: House) -> None:
    run, left = leaving(house, "-v", "--keep", then="; exit 5")
    for _ in range(3):
        said = run.hear_error()
    assert said == "interlock: The command ended with 5; holding 'book' until its last process has exited."
    assert is_running(left)
    assert house.run("run", "-n", "book", "--", "true")[0] == 1
    (house.folder / "fifo").write_text("go\n")
    assert run.ended()[:2] == (5, "late\n")
    assert house.locks.claims() == []


def test_with_keep_a_signal_ends_the_holding(house: House) -> None:
    run, left = leaving(house, "-v", "--keep", "--at-least", "60")
    for _ in range(3):
        run.hear_error()
    run.terminate()
    assert run.wait(timeout=30) == 128 + signal.SIGTERM
    assert "Processes of the command still run" in run.hear_error()
    assert is_running(left)
    assert house.locks.claims() == []
    (house.folder / "fifo").write_text("go\n")
