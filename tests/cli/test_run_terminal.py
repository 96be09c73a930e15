"""`interlock run` on a terminal: keys, job control, input."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from interlock.testing.waiting import eventually
from tests.support.cli_processes import CliRunner, state_of
from tests.support.terminal import Terminal, terminal

CTRL_C, CTRL_Z, CTRL_BACKSLASH, CTRL_D = "\x03", "\x1a", "\x1c", "\x04"

# Prints its process id, the signals that it gets, and what is typed.  It reads only available input: in the
# background a read just after a signal would stop it (SIGTTIN) before it prints the signal.
REPORTER = r"""
import os, select, signal, sys
def told(number, frame):
    os.write(1, b"got " + signal.Signals(number).name.encode() + b"\n")
news, tell = os.pipe()
os.set_blocking(tell, False)
signal.set_wakeup_fd(tell)  # so that one that comes just before select ends it
for number in (1, 2, 3, 10, 15, 18):
    signal.signal(number, told)
print("command", os.getpid(), sys.stdin.isatty(), os.tcgetpgrp(0) == os.getpgrp(), flush=True)
while True:
    ready = select.select([0, news], [], [])[0]
    if news in ready:
        os.read(news, 100)
    elif not (line := os.read(0, 1000)):
        break
    else:
        os.write(1, b"read " + line)
"""


@contextmanager
def reporter(run_cli: CliRunner, *options: str, shell: bool = True) -> Iterator[tuple[Terminal, int, int]]:
    """Run the reporter under a lock; yield the terminal, and the processes of interlock and the reporter."""
    words = ("run", *options, "book", "--", sys.executable, "-c", REPORTER)
    with terminal(run_cli, *words, shell=shell) as person:
        job = int(person.see(r"job (\d+)")[1]) if shell else person.pid
        seen = person.see(r"command (\d+) (\w+) (\w+)")
        assert seen.groups()[1:] == ("True", "True")  # it runs on the terminal, in the foreground
        yield person, job, int(seen[1])


@pytest.mark.parametrize("shell", [True, False])
@pytest.mark.parametrize(("key", "name"), [(CTRL_C, "SIGINT"), (CTRL_BACKSLASH, "SIGQUIT")])
def test_a_key_reaches_the_command_once(run_cli: CliRunner, key: str, name: str, shell: bool) -> None:
    with reporter(run_cli, shell=shell) as (person, job, _):
        for _ in range(3):
            person.press(key)
            person.see(f"got {name}\n")
            # A second signal from interlock would arrive before this later one.
            os.kill(job, signal.SIGUSR1)
            assert person.see(r"got (\w+)")[1] == "SIGUSR1"
        assert run_cli.count("using") == 1
        person.press(CTRL_D)
        if shell:
            person.see("ended 0")


def test_a_signal_to_interlock_reaches_a_foreground_command(run_cli: CliRunner) -> None:
    with reporter(run_cli) as (person, job, _):
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
            os.kill(job, number)
            person.see(f"got {number.name}\n")
            os.kill(job, signal.SIGUSR1)
            assert person.see(r"got (\w+)")[1] == "SIGUSR1"


def test_a_key_ends_the_wait_and_leaves_nothing_behind(run_cli: CliRunner) -> None:
    with run_cli.locks.lock("book"):
        with terminal(run_cli, "run", "book", "--", "touch", "ran") as person:
            run_cli.wait_for(1, "pending")
            person.press(CTRL_C)
            person.see("ended 130")
            assert "Traceback" not in person.seen
            assert run_cli.count("pending") == 0
    assert not (run_cli.folder / "ran").exists()


def test_the_command_reads_from_the_terminal(run_cli: CliRunner) -> None:
    with reporter(run_cli) as (person, _, _):
        person.press("hello\n")
        person.see("read hello")
        person.press(CTRL_D)
        person.see("ended 0")


def test_ctrl_z_stops_both_and_fg_continues_both(run_cli: CliRunner) -> None:
    with reporter(run_cli) as (person, _, command):
        for _ in range(2):
            person.press(CTRL_Z)
            person.see("stopped SIGTSTP")
            is_stopped(command)
            assert run_cli.count("using") == 1
            person.press("fg\n")
            person.see("got SIGCONT")
            person.press("hello\n")
            person.see("read hello")
        person.press(CTRL_D)
        person.see("ended 0")


def test_a_stop_of_interlock_alone_stops_the_command_too(run_cli: CliRunner) -> None:
    with reporter(run_cli) as (person, job, command):
        os.kill(job, signal.SIGTSTP)
        person.see("stopped SIGTSTP")
        is_stopped(command)
        person.press("fg\n")
        person.see("got SIGCONT")


def test_a_closed_terminal_hangs_up_a_session_leaders_command(run_cli: CliRunner) -> None:
    with terminal(run_cli, "run", "book", "--", "sh", "-c", "trap 'echo hup > told; exit' HUP; echo in; cat",
                  shell=False) as person:  # fmt: skip
        person.see("in\n")
    eventually(lambda: run_cli.locks.claims() == [])


def is_stopped(pid: int) -> None:
    """Wait until a process is stopped: before that, it may still read what is typed."""
    eventually(lambda: state_of(pid) == "T")


def test_a_key_reaches_the_command_of_lead_once(run_cli: CliRunner) -> None:
    with terminal(run_cli, "lead", "book", "--", sys.executable, "-c", REPORTER) as person:
        job = int(person.see(r"job (\d+)")[1])
        person.see(r"command (\d+)")
        for _ in range(3):
            person.press(CTRL_C)
            person.see("got SIGINT\n")
            os.kill(job, signal.SIGUSR1)
            assert person.see(r"got (\w+)")[1] == "SIGUSR1"
        person.press(CTRL_D)
        person.see("ended 0")  # and it does not start the command again


WAITS = ["run book -- true", "once book --keep 1h -- true", "lead book -- true", "hold book"]


@pytest.mark.parametrize("words", WAITS)
def test_a_terminal_shows_what_a_command_waits_for(run_cli: CliRunner, words: str) -> None:
    grant = run_cli.locks.lock("book", label="release 7").acquire()
    assert grant is not None
    with terminal(run_cli, *words.split()) as person:
        seen = person.see(
            r"interlock: Waiting for 'book': held by (\d+)@\S+ (.*) for \d+ s\. Press Ctrl-C to stop\.\n"
        )
        assert seen.groups() == (str(os.getpid()), "(release 7)")
        person.press(CTRL_C)
        person.see("ended 130")
    eventually(lambda: len(run_cli.locks.claims("book")) == 1)


def test_a_wait_without_a_terminal_says_nothing(run_cli: CliRunner) -> None:
    with run_cli.locks.lock("book"):
        assert run_cli.run("run", "-w", "1.5", "book", "--", "true") == (1, "", "")


def test_a_terminal_shows_who_has_the_items(run_cli: CliRunner) -> None:
    grant = run_cli.locks.one_of("gpu", ["a"], label="trains").acquire()
    assert grant is not None
    with terminal(run_cli, "run", "--one-of", "gpu=a", "--", "true") as person:
        assert person.see(r"Waiting for 'gpu=a': held by (\d+)@")[1] == str(os.getpid())
        grant.release()
        person.see("ended 0")


def test_a_record_is_nothing_to_evict(run_cli: CliRunner) -> None:
    run_cli.locks.once("import", keep=60).run(lambda: None)
    with terminal(run_cli, "evict", "import") as person:
        person.see("No claim of 'import' was removed")
        person.see("ended 1")
