"""`interlock run`: signals, deaths of processes, and background processes."""

import os
import signal
import sys

import pytest

from interlock.testing.waiting import eventually
from tests.support.cli_processes import REPORTER, CliRunner, is_running, leaving, reporter

FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")


@pytest.mark.parametrize("number", FORWARDED)
def test_a_signal_reaches_the_command_once_and_keeps_the_lock(run_cli: CliRunner, number: int) -> None:
    run, _ = reporter(run_cli)
    run.send_signal(number)
    assert run.read_line() == signal.Signals(number).name
    run.say("")
    assert run.read_line() == "line"
    assert run_cli.count("using") == 1
    assert run.ended() == (0, "", "")


def test_the_lock_is_held_until_a_terminated_command_is_gone(run_cli: CliRunner) -> None:
    cleaning = 'trap "echo cleaning; read _; echo clean; exit 9" TERM; echo in; while :; do read _; done'
    run = run_cli.start_and_read("in", "run", "book", "--", "sh", "-c", cleaning)
    run.terminate()
    assert run.read_line() == "cleaning"
    assert run_cli.run("run", "-n", "book", "--", "true")[0] == 1
    run.say("")
    assert run.ended() == (9, "clean\n", "")
    assert run_cli.locks.claims() == []


def test_a_signal_before_the_start_of_the_command_is_not_lost(run_cli: CliRunner) -> None:
    for _ in range(5):
        run = run_cli.start("run", "book", "--", "sleep", "60")
        run_cli.wait_for(1, "using")
        run.terminate()
        assert run.ended() == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("number", FORWARDED)
def test_a_signal_ends_the_wait_and_leaves_nothing_behind(run_cli: CliRunner, number: int) -> None:
    holder = run_cli.hold()
    waiter = run_cli.start_in_line("run", "book", "--", "touch", "ran")
    waiter.send_signal(number)
    assert waiter.ended() == (128 + number, "", "")
    assert run_cli.count("pending") == 0
    assert holder.ended() == (0, "out\n", "")
    assert not (run_cli.folder / "ran").exists()


def test_a_command_that_signals_its_group_gets_the_signal_once(run_cli: CliRunner) -> None:
    script = "import os, signal, sys; exec(sys.argv[2].replace('print(os.getpid(), flush=True)', 'os.kill(0, 10)'))"
    run = run_cli.start("run", "book", "--", sys.executable, "-c", script, "stays", REPORTER, start_new_session=True)
    assert run.read_line() == "SIGUSR1"
    run.say("")
    assert run.ended() == (0, "line\n", "")


# Deaths


@LINUX
def test_a_command_dies_with_an_interlock_that_was_killed(run_cli: CliRunner) -> None:
    run, command = reporter(run_cli)
    run.kill()
    eventually(lambda: not is_running(command))
    eventually(lambda: run_cli.locks.claims() == [])


def test_a_waiter_that_was_killed_leaves_nothing_behind(run_cli: CliRunner) -> None:
    holder = run_cli.hold()
    waiter = run_cli.start_in_line("run", "book", "--", "touch", "ran")
    waiter.kill()
    waiter.wait(timeout=30)
    assert holder.ended() == (0, "out\n", "")
    assert run_cli.run("run", "-w", "20", "book", "--", "true") == (0, "", "")
    assert waiter.ended()[1:] == ("", "")  # no process has its output open any more
    assert not (run_cli.folder / "ran").exists()


def test_a_command_that_was_killed_releases(run_cli: CliRunner) -> None:
    run, command = reporter(run_cli)
    os.kill(command, signal.SIGKILL)
    assert run.ended() == (128 + signal.SIGKILL, "", "")
    assert run_cli.locks.claims() == []


# What the command leaves running


def test_a_process_in_the_background_does_not_keep_the_lock(run_cli: CliRunner) -> None:
    run, left = leaving(run_cli)
    assert run.wait(timeout=30) == 0
    assert is_running(left)
    assert run_cli.locks.claims() == []
    (run_cli.folder / "fifo").write_text("go\n")
    assert run.ended() == (0, "late\n", "")


def test_with_keep_it_does(run_cli: CliRunner) -> None:
    run, left = leaving(run_cli, "-v", "--keep", then="; exit 5")
    for _ in range(3):
        said = run.read_error_line()
    assert said == "interlock: The command ended with 5; holding 'book' until its last process has exited."
    assert is_running(left)
    assert run_cli.run("run", "-n", "book", "--", "true")[0] == 1
    (run_cli.folder / "fifo").write_text("go\n")
    assert run.ended()[:2] == (5, "late\n")
    assert run_cli.locks.claims() == []


def test_with_keep_a_signal_ends_the_holding(run_cli: CliRunner) -> None:
    run, left = leaving(run_cli, "-v", "--keep", "--at-least", "60")
    for _ in range(3):
        run.read_error_line()
    run.terminate()
    assert run.wait(timeout=30) == 128 + signal.SIGTERM
    assert "Processes of the command still run" in run.read_error_line()
    assert is_running(left)
    assert run_cli.locks.claims() == []
    (run_cli.folder / "fifo").write_text("go\n")
