"""A user at a terminal, and a minimal shell with job control."""

import os
import pty
import re
import select
import signal
import sys
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.cli_processes import COMMAND, WAIT_LIMIT, CliRunner

# One job in its own process group, in the foreground.
SHELL = r"""
import os, signal, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
print("job", job, flush=True)
while True:
    _, status = os.waitpid(job, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    if not os.WIFSTOPPED(status):
        print("ended", os.waitstatus_to_exitcode(status), flush=True)
        break
    print("stopped", signal.Signals(os.WSTOPSIG(status)).name, flush=True)
    if sys.stdin.readline().strip() == "fg":
        os.tcsetpgrp(0, job)
    os.killpg(job, signal.SIGCONT)
"""


class Terminal:
    """A user at a terminal."""

    def __init__(self, master: int, pid: int) -> None:
        self._master = master
        self.pid = pid
        self.seen = ""
        self._decode = getincrementaldecoder("utf-8")().decode  # a read may end inside a letter

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._master, keys.encode())

    def see(self, pattern: str) -> re.Match[str]:
        """Wait until the terminal shows a text that matches; discard the output up to it, and return the match."""
        deadline = time.monotonic() + WAIT_LIMIT
        while (match := re.search(pattern, self.seen)) is None:
            assert select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0], self.seen
            try:
                self.seen += self._decode(os.read(self._master, 4096)).replace("\r\n", "\n")
            except OSError:  # the last process has closed the terminal
                raise AssertionError(f"{pattern!r} is not in {self.seen!r}") from None
        self.seen = self.seen[match.end() :]
        return match


@contextmanager
def terminal(run_cli: CliRunner, *words: str, shell: bool = True) -> Iterator[Terminal]:
    """Run `interlock` on a new terminal, as the job of a shell or as the session's leader."""
    pid, master = pty.fork()
    if pid == 0:
        os.environ["INTERLOCK_URL"] = run_cli.url
        os.environ["TERM"] = "xterm-256color"
        os.chdir(run_cli.folder)
        command = [*COMMAND, *words]
        os.execv(sys.executable, [sys.executable, "-c", SHELL, *command] if shell else command)
    try:
        yield Terminal(master, pid)
    finally:
        os.close(master)
        for end in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.waitpid(pid, 0)):
            try:
                end()
            except (ProcessLookupError, ChildProcessError):
                pass
