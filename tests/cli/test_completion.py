"""Completion in a real bash, and by click's own protocol."""

import os
import pty
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cli_processes import CliRunner
from tests.support.terminal import Terminal


@contextmanager
def bash(run_cli: CliRunner) -> Iterator[Terminal]:
    """A user at bash, with completion set up as in the documentation."""
    run_cli.script("interlock", f'#!/bin/sh\nexec {sys.executable} -m interlock "$@"\n')
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(
            PATH=f"{run_cli.folder}:{os.environ['PATH']}", INTERLOCK_URL=run_cli.url, PS1="$ ", TERM="dumb"
        )
        os.chdir(run_cli.folder)
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    person = Terminal(master, pid)
    try:
        person.press('bind "set enable-bracketed-paste off"\n')
        person.press('eval "$(_INTERLOCK_COMPLETE=bash_source interlock)"; echo re""ady\n')
        person.see("\nready\n")
        yield person
    finally:
        os.close(master)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_bash_completes_commands_options_and_names_with_colons(run_cli: CliRunner) -> None:
    with run_cli.locks.lock("book:one"), bash(run_cli) as person:
        for typed, completed in (
            ("interlock doc", "interlock doctor "),
            ("interlock ls --name", "interlock ls --namespace "),
            ("interlock show bo", "interlock show book:one "),
            ("interlock show book:o", "interlock show book:one "),
            (f"interlock show --store {run_cli.url} b", "book:one "),
            ("interlock run --perm", "interlock run --permits "),
            ("interlock run -w 5 bo", "interlock run -w 5 book:one "),
        ):
            person.press(f"{typed}\t")
            person.see(completed.replace("+", r"\+"))
            person.press("\x15")
