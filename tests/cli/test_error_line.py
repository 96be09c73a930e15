"""The one line on the error stream."""

import os
import subprocess
import sys

import pytest

from interlock.cli.exit_codes import OUTPUT, UNAVAILABLE
from tests.support.cli_processes import COMMAND, CliRunner


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_an_error_stream_that_takes_nothing_stops_no_command(run_cli: CliRunner, closed: str) -> None:
    shell = ["env", "-u", "PYTHONUNBUFFERED", "sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND]
    assert run_cli.run("run", "-v", "book", "--", "echo", "done", command=shell) == (0, "done\n", "")
    assert run_cli.run("run", "book", "--", "/nowhere", command=shell)[0] == UNAVAILABLE


A_THREAD_SAYS = """
import sys, threading
from interlock.cli.exit_codes import say
threading.Thread(target=say, args=("waiting " * 100_000,), daemon=True).start()
sys.stdin.readline()
"""


def test_a_thread_that_still_writes_lets_the_command_end() -> None:
    """Python 3.11 aborts if a daemon thread holds the lock of the stream when Python ends."""
    with subprocess.Popen(
        [sys.executable, "-c", A_THREAD_SAYS], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdin is not None
        assert command.stderr is not None
        begin = command.stderr.read(1)  # the thread writes, and the pipe is too small for its line
        command.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(1.0)
        assert (begin + command.stderr.read()).count("waiting") == 100_000
        assert command.wait() == 0


def test_an_output_that_refuses_the_text_is_an_error(run_cli: CliRunner) -> None:
    """An eventfd takes eight bytes: EINVAL, which on Windows says that nobody reads."""
    output = os.eventfd(0)
    try:
        done = subprocess.run(
            [*COMMAND, "doctor", "--store", run_cli.folder.as_uri()], stdout=output, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(output)
    assert done.returncode == OUTPUT
    assert "Cannot write the output" in done.stderr


AN_EXIT_WAITS_FOR_A_THREAD = """
import atexit, threading
ends = threading.Event()
def work():
    ends.wait()
    say("too late")
thread = threading.Thread(target=work, daemon=True)
thread.start()
def wait():
    ends.set()
    thread.join()
atexit.register(wait)
from interlock.cli.exit_codes import say  # its own part of the exit comes first
"""


def test_a_program_whose_exit_waits_for_a_thread_ends() -> None:
    words = [sys.executable, "-c", AN_EXIT_WAITS_FOR_A_THREAD]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")
