"""The process of the command: made first, let go when the lock is held.

It is forked before this process has a second thread, so that it can prepare itself in Python: a fork later could
hang, and `posix_spawn` can't ask the kernel to take the command along when interlock is killed.
"""

import errno
import os
import signal
import stat
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn
from urllib.parse import quote, unquote

from interlock.cli import is_alone
from interlock.cli.exits import BY_SIGNAL, UNAVAILABLE
from interlock.cli.signals import Signals

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
FIRST_HIGH = 100  # scripts use low descriptors by number
SHELL = "/bin/sh"
HELD = "INTERLOCK_HELD"
"""In the environment of a command: the ids of the claims of the runs around it, the innermost last."""


class NotRunnable(Exception):
    """The command is not there or not executable; the message says what to do."""


def look_up(word: str) -> str:
    """Return the path of the program that `word` names, as the shell finds it.

    Raises:
        NotRunnable: there is none.
    """
    if not word:
        raise NotRunnable("can't run a command without a name; the first word after -- is the program")
    candidates = [word] if "/" in word else [os.path.join(folder, word) for folder in os.get_exec_path()]
    found = ""
    for path in candidates:
        try:
            mode = os.stat(path).st_mode
        except (OSError, ValueError):
            continue
        if not stat.S_ISDIR(mode) and os.access(path, os.X_OK):
            return path
        found = found or path
    if not found:
        where = "there is no such file" if "/" in word else "it is in no folder of PATH"
        raise NotRunnable(f"can't run {word!r}: {where}; check its spelling, or install it")
    if os.path.isdir(found):
        raise NotRunnable(f"can't run {word!r}: {found!r} is a folder; name the program in it")
    raise NotRunnable(f"can't run {word!r}: {found!r} is not executable; chmod +x makes it so")


class Child:
    """The process of the command; waits for `go`, and is gone at the latest after `discard`.

    Args:
        path: of the program.
        words: of the command.
        signals: those of this process, not listening yet.
        keep: give the command a pipe by which one can tell when the last process of it is gone.

    Attributes:
        pid: its process id.
        status: its exit status as a shell shows it; None while it runs.
    """

    def __init__(self, path: str, words: Sequence[str], signals: Signals, keep: bool) -> None:
        self.status: int | None = None
        self._mutex = threading.Lock()  # a process id is somebody else's once its status has been taken
        go_ahead_out, self._go_ahead = os.pipe()
        self._report, report_in = os.pipe()
        self._alive, alive_in = _high_pipe() if keep else (-1, -1)
        self._open = [self._report] + [self._alive] * keep
        parent = os.getpid()
        self._takes_all = parent == 1 or is_alone()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._go_ahead)
                _become(path, words, signals, go_ahead_out, report_in, parent)
            finally:
                os._exit(UNAVAILABLE)
        os.close(go_ahead_out)
        os.close(report_in)
        if keep:
            os.close(alive_in)

    def go(self, name: str, fence: int, claim: str, item: str = "") -> None:
        """Let the command start, with INTERLOCK_NAME, _FENCE, _HELD and _ITEM in its environment."""
        try:
            os.write(self._go_ahead, os.fsencode(f"{fence} {claim} {quote(item)} {name}"))
        except BrokenPipeError:
            pass  # somebody killed it: its status tells
        self._forget_word()

    def send(self, number: int) -> None:
        """Send it a signal, unless it is gone."""
        with self._mutex:
            if self.status is None:
                try:
                    os.kill(self.pid, number)
                except PermissionError:
                    pass  # it runs as somebody else, like sudo: all that is left is to wait for it

    def look(self) -> None:
        """Set `status` if it has ended; take the status of all others that have, if they are nobody else's to take.

        As process 1 of a container, or as a subreaper, interlock is given every process whose parent is gone, and
        nobody else can let it go.  In a program that contains the command they are that program's.  From any thread.
        """
        with self._mutex:
            while self._reap(-1 if self._takes_all else self.pid, os.WNOHANG) and self._takes_all:
                pass

    def failure(self) -> str | None:
        """Return why the command could not be started after all; None if it was.  Only when it has ended."""
        number = os.read(self._report, 20)
        return os.strerror(int(number)) if number else None

    def wait_until_all_are_gone(self) -> None:
        """Block until no process has the pipe of `keep` any more."""
        os.read(self._alive, 1)

    def discard(self) -> None:
        """Kill it if it has not ended; safe to repeat."""
        self._forget_word()
        if self.status is None:
            self.send(signal.SIGKILL)
            with self._mutex:
                if self.status is None:
                    self._reap(self.pid, 0)
        while self._open:
            os.close(self._open.pop())

    def _reap(self, which: int, how: int) -> bool:
        """Take the status of a process; return True if there was one."""
        try:
            pid, status = os.waitpid(which, how)
        except ChildProcessError:
            return False
        if pid == self.pid:
            code = os.waitstatus_to_exitcode(status)
            self.status = code if code >= 0 else BY_SIGNAL - code
        return pid != 0

    def _forget_word(self) -> None:
        if self._go_ahead >= 0:
            os.close(self._go_ahead)
            self._go_ahead = -1


def _high_pipe() -> tuple[int, int]:
    """Return a pipe whose second end is inherited, and has a number that no script uses."""
    import fcntl

    out, into = os.pipe()
    high = fcntl.fcntl(into, fcntl.F_DUPFD, FIRST_HIGH)
    os.close(into)
    return out, high


def _become(path: str, words: Sequence[str], signals: Signals, go_ahead: int, report: int, parent: int) -> NoReturn:
    """In the child: wait until it may run, and become the command."""
    die_with(parent)
    fence, _, claim_and_name = os.fsdecode(os.read(go_ahead, 8192)).partition(" ")
    if not fence:
        os._exit(0)  # the lock was not obtained, or interlock is gone
    claim, item, name = claim_and_name.split(" ", 2)
    if item:
        os.environ["INTERLOCK_ITEM"] = unquote(item)
    os.environ["INTERLOCK_FENCE"] = fence
    os.environ["INTERLOCK_NAME"] = name
    os.environ[HELD] = f"{os.environ.get(HELD, '')} {claim}".lstrip()
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGURG):
        if number != signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN if signals.ignores_children else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, signals.mask)
    try:
        _execute(path, words)
    except OSError as error:
        os.write(report, b"%d" % (error.errno or errno.EIO))
        os._exit(UNAVAILABLE)


def _execute(path: str, words: Sequence[str]) -> NoReturn:
    try:
        os.execv(path, tuple(words))
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
        # A script without a first line that names its interpreter: the shell's, as execvp(3) has it.
        os.execv(SHELL, (SHELL, path, *words[1:]))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to send this process a signal when interlock dies, so that nobody works without the lock."""
    if sys.platform == "linux":
        try:
            import ctypes

            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        except (ImportError, OSError, AttributeError):
            return  # a Python without ctypes: as on other systems
    if os.getppid() != parent:
        os._exit(0)
