"""`interlock run` with inherited signal settings other than a terminal's: nohup, cron, `&` in a script."""

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support.cli_processes import COMMAND, REPORTER, CliRunner

KEPT = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGTSTP]
PYTHONS_OWN = [signal.SIGPIPE, signal.SIGXFSZ]
ROOT = Path(__file__).parents[2]


def ignoring(*numbers: int, blocking: bool = False) -> list[str]:
    """The command `interlock`, started by a process that ignores or blocks signals."""
    how = (
        f"signal.pthread_sigmask(signal.SIG_BLOCK, {[int(number) for number in numbers]})"
        if blocking
        else f"[signal.signal(number, signal.SIG_IGN) for number in {[int(number) for number in numbers]}]"
    )
    return [sys.executable, "-c", f"import os, signal, sys; {how}; os.execv(sys.argv[1], sys.argv[1:])", *COMMAND]


def mask_of(status: str, key: str) -> set[int]:
    mask = int(re.search(rf"^{key}:\s*([0-9a-f]+)$", status, re.MULTILINE)[1], 16)  # type: ignore[index]
    return {number for number in range(1, 65) if mask >> (number - 1) & 1}


@pytest.mark.parametrize("number", KEPT)
def test_an_ignored_signal_stays_ignored_for_run_and_command(run_cli: CliRunner, number: signal.Signals) -> None:
    holder = run_cli.hold()
    reporter = [sys.executable, "-c", REPORTER, "stays"]
    run = run_cli.start_in_line("run", "book", "--", *reporter, command=ignoring(number))
    run.send_signal(number)  # does not end the wait
    holder.ended()
    assert run.read_line().isdigit()
    run.send_signal(number)  # reaches no process
    run.send_signal(signal.SIGUSR2)
    assert run.read_line() == "SIGUSR2"
    assert run.ended() == (0, "", "")
    _, status, _ = run_cli.run("run", "book", "--", "cat", "/proc/self/status", command=ignoring(number))
    assert number in mask_of(status, "SigIgn")


def test_a_command_under_nohup_survives_the_terminal(run_cli: CliRunner) -> None:
    words = ("run", "book", "--", "sh", "-c", "echo in; exec cat")
    run = run_cli.start_and_read("in", *words, command=["nohup", *COMMAND])
    run.send_signal(signal.SIGHUP)
    run.say("still here")
    assert run.read_line() == "still here"
    assert run.ended()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_blocked_signal_stays_blocked_only_for_the_command(run_cli: CliRunner, number: signal.Signals) -> None:
    blocking = ignoring(number, blocking=True)
    _, status, _ = run_cli.run("run", "book", "--", "cat", "/proc/self/status", command=blocking)
    assert number in mask_of(status, "SigBlk")
    with run_cli.locks.lock("book"):
        waiter = run_cli.start_in_line("run", "book", "--", "true", command=blocking)
        waiter.send_signal(number)
        assert waiter.ended()[0] == 128 + number


@pytest.mark.parametrize("number", PYTHONS_OWN)
def test_signals_ignored_by_Python_are_default_for_the_command(run_cli: CliRunner, number: signal.Signals) -> None:
    """Whether the signal was ignored before can't be known: Python does not report it."""
    for command in (COMMAND, ignoring(number)):
        _, status, _ = run_cli.run("run", "book", "--", "cat", "/proc/self/status", command=command)
        assert number not in mask_of(status, "SigIgn")


def test_a_background_run_ignores_signals_of_the_keyboard(run_cli: CliRunner) -> None:
    os.mkfifo(run_cli.folder / "fifo")
    words = " ".join(COMMAND)
    script = f"{words} run book -- sh -c 'echo in; read _ < fifo; echo out' & wait"
    shell = run_cli.start_and_read("in", "-c", script, command=["/bin/sh"], start_new_session=True)
    (view,) = run_cli.locks.claims("book")
    os.kill(view.pid, signal.SIGINT)
    os.kill(view.pid, signal.SIGQUIT)
    (run_cli.folder / "fifo").write_text("\n")
    assert shell.read_line() == "out"
    assert shell.ended()[0] == 0
