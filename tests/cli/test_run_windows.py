"""How `interlock run` stops a command on Windows; on Linux, with doubles for the calls of Windows.

tests/platforms/windows runs the command on Windows itself.
"""

import signal
import sys

import pytest

from interlock.testing.waiting import RENEWED
from tests.support.cli_processes import REPORTER, CliRunner, Process

# CTRL_BREAK_EVENT is TERM, and the end of the job is KILL; both write a line first.
DOUBLES = """
import os, signal, subprocess
from interlock.cli import _child_windows as windows, child_process
kill, start = os.kill, subprocess.Popen
class Job:
    def resume(self, pid):
        self.pid = pid
        kill(pid, signal.SIGCONT)
    def end(self):
        os.write(2, b"TerminateJobObject\\n")
        kill(self.pid, signal.SIGKILL)
    def close(self):
        os.write(2, b"close\\n")
class Popen(start):
    def __init__(self, line, env, creationflags):
        assert creationflags == 0x204
        super().__init__(line, env=env)
        kill(self.pid, signal.SIGSTOP)  # CREATE_SUSPENDED
def event(pid, number):
    if CONSOLE is False:
        raise OSError
    assert number == 1
    os.write(2, b"CTRL_BREAK\\n")
    kill(pid, signal.SIGTERM)
windows.Job, windows.subprocess.Popen, windows.os.kill = Job, Popen, event
child_process.system = windows
"""


def start(run_cli: CliRunner, kind: str, *options: str, console: bool = True) -> Process:
    """Start a run of the reporter, and wait until it has begun."""
    extra = run_cli.python_with(DOUBLES.replace("CONSOLE", repr(console)))
    run = run_cli.start("run", *options, "book", "--", sys.executable, "-S", "-c", REPORTER, kind, extra=extra)
    assert run.read_line().isdigit()
    return run


SHORT = ("--ttl", str(RENEWED))


def test_a_command_that_ends_when_asked_is_not_ended_by_force(run_cli: CliRunner) -> None:
    run = start(run_cli, "leaves", *SHORT, "--grace", "60")
    run_cli.locks.evict("book")
    assert run.read_line() == "SIGTERM"
    status, _, errors = run.ended()
    assert (status, errors.splitlines()[1:]) == (70, ["CTRL_BREAK", "close"])


def test_a_command_that_stays_is_ended_after_the_grace(run_cli: CliRunner) -> None:
    run = start(run_cli, "stays", *SHORT, "--grace", "1")
    run_cli.locks.evict("book")
    assert run.read_line() == "SIGTERM"
    assert run.wait(timeout=30) == 70
    assert run.ended()[2].splitlines()[1:] == ["CTRL_BREAK", "TerminateJobObject", "close"]


def test_without_a_console_the_command_is_ended_without_a_grace(run_cli: CliRunner) -> None:
    run = start(run_cli, "stays", *SHORT, "--grace", "60", console=False)
    run_cli.locks.evict("book")
    assert run.wait(timeout=30) == 70
    assert run.ended()[2].splitlines()[1:] == ["TerminateJobObject", "close"]


@pytest.mark.parametrize("number", [signal.SIGINT, 21], ids=["Ctrl-C", "Ctrl-Break"])
def test_a_key_of_the_console_asks_the_command_to_end(run_cli: CliRunner, number: int) -> None:
    run = start(run_cli, "leaves")
    run.send_signal(number)
    assert run.read_line() == "SIGTERM"
    status, _, errors = run.ended()
    assert (status, errors.splitlines()) == (7, ["CTRL_BREAK", "close"])
